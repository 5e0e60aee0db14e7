#include "report/blame.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace whyrss {
namespace {

enum class Origin { user, package, standard_library, frozen };

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
bool starts_with(const std::string& text, std::string_view part) { return text.compare(0, part.size(), part) == 0; }

// .../lib/python3.11/json/__init__.py but not .../lib/python3.11/site-packages/...
bool in_python_library(const std::string& path) {
  for (std::size_t at = path.find("/lib/python"); at != std::string::npos; at = path.find("/lib/python", at + 1)) {
    const char next = at + 11 < path.size() ? path[at + 11] : '\0';
    if (next >= '0' && next <= '9') return true;
  }
  return false;
}

Origin origin(const std::string& file) {
  if (starts_with(file, "<frozen ")) return Origin::frozen;
  if (contains(file, "/site-packages/") || contains(file, "/dist-packages/")) return Origin::package;
  return in_python_library(file) ? Origin::standard_library : Origin::user;
}

// The `python -c` line with which multiprocessing starts a process: it stands for no line of the program.
bool is_launch_line(const Frame& frame, const Frame* inner) {
  return frame.file == "<string>" && inner != nullptr && contains(inner->file, "/multiprocessing/") &&
         in_python_library(inner->file);
}

// Libraries that serve or pass on memory for others; naming them would not help anyone.
bool serves_others(const std::string& module_path) {
  static constexpr std::array<std::string_view, 13> kPrefixes{
      "libc.so", "libc-2",    "ld-linux",    "ld-2",        "libpthread",  "libstdc++", "libgcc_s",
      "libdl",   "libwhyrss", "libjemalloc", "libtcmalloc", "libmimalloc", "libm.so"};
  const std::string name = base_name(module_path);
  for (const std::string_view prefix : kPrefixes)
    if (starts_with(name, prefix)) return true;
  return false;
}

// The interpreter, and the extension modules that come with it.
bool is_interpreter(const std::string& module_path) {
  const std::string name = base_name(module_path);
  if (starts_with(name, "libpython")) return true;
  if (contains(module_path, "/lib-dynload/")) return true;
  return starts_with(name, "python") && !contains(name, ".so");
}

// Code that a compiler brings along and puts into everybody's programs: start-up, and the containers and
// allocators of C++ and Rust, often inlined. Nobody can change it, and its lines say nothing about who asked for the
// memory.
bool is_language_code(const Frame& frame) {
  static constexpr std::array<std::string_view, 4> kFiles{"/usr/include/", "/include/c++/", "/rustc/", "/rustlib/src/"};
  static constexpr std::array<std::string_view, 6> kFunctions{"std::",  "__gnu_cxx::", "operator new",
                                                              "core::", "alloc::",     "<alloc::"};
  for (const std::string_view part : kFiles)
    if (contains(frame.file, part)) return true;
  if (frame.function == "_start") return true;
  const std::string function = starts_with(frame.function, "void ") ? frame.function.substr(5) : frame.function;
  for (const std::string_view prefix : kFunctions)
    if (frame.file.empty() && starts_with(function, prefix)) return true;
  return false;
}

}  // namespace

std::string base_name(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

const Frame* blamed_frame(const StackTable& stacks, StackId stack) {
  std::array<const Frame*, 4> python{};  // innermost of each Origin
  const Frame* inner = nullptr;
  const Frame* own = nullptr;
  const Frame* outside = nullptr;
  const Frame* named = nullptr;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (frame.kind == FrameKind::python) {
      const Frame*& place = python.at(static_cast<std::size_t>(origin(frame.file)));
      if (place == nullptr && !is_launch_line(frame, inner)) place = &frame;
      inner = &frame;
    } else if (!frame.function.empty()) {
      const std::string& module = stacks[frame.module].path;
      if (named == nullptr) named = &frame;
      if (serves_others(module) || is_interpreter(module)) continue;
      if (outside == nullptr) outside = &frame;
      if (own == nullptr && !is_language_code(frame)) own = &frame;
    }
  }
  for (const Frame* frame : python)
    if (frame != nullptr) return frame;
  if (own != nullptr) return own;
  return outside != nullptr ? outside : named;
}

std::string code_line(const StackTable& stacks, const Frame* frame) {
  if (frame == nullptr) return "";
  const std::string function = frame->function.empty() ? "" : " in " + frame->function;
  if (!frame->file.empty() && frame->line > 0)
    return fmt::format("{}:{}{}", base_name(frame->file), frame->line, function);
  if (!frame->file.empty()) return base_name(frame->file) + function;
  std::string module = base_name(stacks[frame->module].path);
  if (frame->function.empty()) return module;
  return module.empty() ? frame->function : fmt::format("{} ({})", frame->function, module);
}

bool is_received(const StackTable& stacks, StackId stack) {
  struct Receiver {
    std::string_view file, function;
  };
  static constexpr std::array<Receiver, 3> kReceivers{{
      {"/multiprocessing/spawn.py", "_main"},
      {"/multiprocessing/queues.py", "get"},
      {"/multiprocessing/connection.py", "recv"},
  }};
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (frame.kind != FrameKind::python) continue;
    if (starts_with(frame.file, "<frozen ")) return false;  // an import, by an object or by the main module
    if (!in_python_library(frame.file)) continue;
    if (frame.file.ends_with("/multiprocessing/process.py")) return false;  // what the process does itself
    const std::size_t dot = frame.function.find_last_of('.');               // of a method, from CPython 3.11 on
    const std::string_view function = std::string_view(frame.function).substr(dot == std::string::npos ? 0 : dot + 1);
    for (const Receiver& receiver : kReceivers)
      if (frame.file.ends_with(receiver.file) && function == receiver.function) return true;
  }
  return false;
}

bool is_python_object(const StackTable& stacks, StackId stack) {
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (frame.kind == FrameKind::python) return true;
    const std::string& module = stacks[frame.module].path;
    if (!module.empty() && !serves_others(module) && !is_interpreter(module)) return false;
  }
  return false;
}

}  // namespace whyrss
