#include "report/view/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/python_path.h"
#include "model/thread_starts.h"
#include "report/view/native_code.h"

namespace whyrss {
namespace {

// Python frames in the order in which they are to blame; within one kind the innermost is.
enum class PythonCode : std::uint8_t { user, program, launcher, package, generated, standard_library, frozen };

// What a program brings along of other people's packages.
bool is_vendored(std::string_view file) { return file.find("/_vendor/") != std::string_view::npos; }

bool is_in_place(std::string_view file, const ProgramCode& program) {
  return std::ranges::any_of(program.places, [&](const std::string& place) {
    return place.ends_with('/') ? file.starts_with(place) : file == place;
  });
}

// Methods that dataclasses compiles from a string.
bool is_made_by_dataclasses(const Frame& frame) { return frame.function.starts_with("__create_fn"); }

PythonCode python_code(const Frame& frame, const ProgramCode& program) {
  switch (python_origin(frame.file, program.package_folders)) {
    case PythonOrigin::user:
      return std::ranges::find(program.launchers, frame.file) == program.launchers.end() ? PythonCode::user
                                                                                         : PythonCode::launcher;
    case PythonOrigin::package:
      return is_in_place(frame.file, program) && !is_vendored(frame.file) ? PythonCode::program : PythonCode::package;
    case PythonOrigin::generated:
      return is_in_place(frame.file, program) && !is_made_by_dataclasses(frame) ? PythonCode::user
                                                                                : PythonCode::generated;
    case PythonOrigin::standard_library:
      return is_in_place(frame.file, program) ? PythonCode::program : PythonCode::standard_library;
    case PythonOrigin::frozen:
      break;
  }
  return PythonCode::frozen;
}

// The `python -c` line with which multiprocessing starts a process: it stands for no line of the program.
bool is_launch_line(const Frame& frame, const Frame* inner) {
  return frame.file == "<string>" && inner != nullptr && inner->file.find("/multiprocessing/") != std::string::npos &&
         is_in_python_library(inner->file);
}

// The first frame of the lowest kind.
template <typename Kind>
class FirstOf {
 public:
  // True: it is this one until another is offered.
  bool offer(FrameId frame, Kind kind) {
    if (frame_ && kind >= kind_) return false;
    frame_ = frame;
    kind_ = kind;
    return true;
  }
  void reset() { frame_.reset(); }
  [[nodiscard]] std::optional<FrameId> frame() const { return frame_; }

 private:
  std::optional<FrameId> frame_;
  Kind kind_{};
};

// Of a file that is gone /proc says so behind its path.
std::string module_name(const std::string& path) {
  constexpr std::string_view kGone = " (deleted)";
  return base_name(path.ends_with(kGone) ? path.substr(0, path.size() - kGone.size()) : path);
}

}  // namespace

bool is_importer(const Frame& frame) {
  const std::string& file = frame.file;
  return file.starts_with("<frozen importlib") || file.find("/importlib/_bootstrap") != std::string::npos ||
         file.ends_with("/importlib/__init__.py");  // import_module()
}

std::string base_name(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

namespace {

bool has_name(const Frame& frame, std::string_view name) {
  const std::size_t dot = frame.function.find_last_of('.');  // of a method, from CPython 3.11 on
  return std::string_view(frame.function).substr(dot == std::string::npos ? 0 : dot + 1) == name;
}

// By which kind of code a frame is to blame, as a number from 1 on; 0: none.
template <typename Find>
std::uint8_t kind_once(const StackTable& stacks, FrameId id, Find find) {
  constexpr std::uint8_t kUnknown = 0, kFirst = 1;
  std::vector<std::uint8_t>& known = stacks.blame_memo().frames;
  if (known.size() < stacks.frame_count()) known.resize(stacks.frame_count(), kUnknown);
  std::uint8_t& kind = known[static_cast<std::size_t>(id)];
  if (kind == kUnknown) kind = static_cast<std::uint8_t>(kFirst + static_cast<std::uint8_t>(find()));
  return static_cast<std::uint8_t>(kind - kFirst);
}

NativeCode native_code_once(const StackTable& stacks, FrameId id) {
  const Frame& frame = stacks[id];
  return static_cast<NativeCode>(kind_once(stacks, id, [&] { return native_code(frame, stacks[frame.module].path); }));
}

struct PythonFunction {
  std::string_view file, function;  // the end of its path, its name
};

bool is_any_of(const Frame& frame, std::span<const PythonFunction> functions) {
  return std::ranges::any_of(functions, [&](const PythonFunction& known) {
    return frame.file.ends_with(known.file) && has_name(frame, known.function);
  });
}

// The frame of an event loop that runs what is due: the line that started the loop asked for none of it.
bool runs_callbacks(const Frame& frame, const std::string& module) {
  static constexpr std::array<PythonFunction, 3> kLoops{{
      {"/asyncio/events.py", "_run"},
      {"/trio/_core/_run.py", "unrolled_run"},
      {"/twisted/internet/base.py", "mainLoop"},
  }};
  return frame.kind == FrameKind::native ? module.find("/uvloop/loop.") != std::string::npos : is_any_of(frame, kLoops);
}

// Code of the executable that has no name: stripped, or gone.
bool is_nameless_program(const Frame& frame, NativeCode code, const std::string& module) {
  return frame.function.empty() && (code == NativeCode::program_offset || code == NativeCode::library_offset) &&
         !is_shared_library(module);
}

std::optional<FrameId> find_blamed(const StackTable& stacks, StackId stack) {
  FirstOf<PythonCode> python;
  FirstOf<NativeCode> native;
  std::optional<FrameId> nameless;  // the innermost frame of the executable, where that has no name
  bool is_called_back = false;      // it comes before what is to blame so far, which is a library that called it
  const Frame* inner = nullptr;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (is_thread_frame(frame)) continue;
    if (python.frame() && runs_callbacks(frame, stacks[frame.module].path)) break;
    if (frame.kind == FrameKind::native) {
      const NativeCode code = native_code_once(stacks, id);
      if (code == NativeCode::allocator) {
        native.reset();
        nameless.reset();
      }
      const std::string& module = stacks[frame.module].path;
      if (!nameless && is_nameless_program(frame, code, module)) nameless = id;
      if (code == NativeCode::nowhere && frame.function.empty()) continue;
      if (native.offer(id, code)) is_called_back = nameless && nameless != id && is_shared_library(module);
      continue;
    }
    if (frame.file.empty()) continue;  // its code object was never described
    if (!is_launch_line(frame, inner))
      python.offer(id, static_cast<PythonCode>(
                           kind_once(stacks, id, [&] { return python_code(frame, stacks.program_code()); })));
    inner = &frame;
  }
  if (python.frame()) return python.frame();
  return is_called_back ? nameless : native.frame();
}

std::optional<FrameId> find_native_line(const StackTable& stacks, StackId stack) {
  const Frame* blamed = blamed_frame(stacks, stack);
  if (blamed == nullptr || blamed->kind != FrameKind::python) return std::nullopt;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (&frame == blamed || is_thread_frame(frame)) break;
    if (frame.kind == FrameKind::native && frame.line > 0 && native_code_once(stacks, id) == NativeCode::program)
      return id;
  }
  return std::nullopt;
}

// Of the outermost import that lies within the innermost line of the program's own code: what it ran, or the importer.
std::optional<FrameId> find_imported(const StackTable& stacks, StackId stack) {
  std::optional<FrameId> module, inner;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (is_waiter_frame(frame)) continue;
    if (is_thread_frame(frame)) break;
    if (frame.kind != FrameKind::python || frame.file.empty()) continue;
    if (is_importer(frame)) {
      if (!is_import_helper(frame)) module = inner ? inner : id;
      continue;
    }
    const auto code =
        static_cast<PythonCode>(kind_once(stacks, id, [&] { return python_code(frame, stacks.program_code()); }));
    if (code <= PythonCode::launcher) break;
    inner = id;
  }
  return module;
}

}  // namespace

namespace {

// Asks once for each stack.
template <typename Find>
const Frame* frame_once(const StackTable& stacks, StackId stack, std::vector<std::uint32_t>& known, Find find) {
  constexpr std::uint32_t kUnknown = 0xffffffff, kNone = 0;  // no frame has the number 0
  if (known.size() < stacks.stack_count()) known.resize(stacks.stack_count(), kUnknown);
  std::uint32_t& id = known.at(static_cast<std::size_t>(stack));
  if (id == kUnknown) {
    const std::optional<FrameId> found = find(stacks, stack);
    id = found ? static_cast<std::uint32_t>(*found) : kNone;
  }
  return id == kNone ? nullptr : &stacks[FrameId{id}];
}

}  // namespace

bool is_import_helper(const Frame& frame) {
  static constexpr std::array<std::string_view, 4> kHelpers{"source_to_code", "_call_with_frames_removed",
                                                            "_write_atomic", "cache_from_source"};
  return is_importer(frame) &&
         std::ranges::any_of(kHelpers, [&](std::string_view name) { return has_name(frame, name); });
}

bool begins_process(const Frame& frame) {
  return frame.kind == FrameKind::python && frame.file.ends_with("/multiprocessing/process.py") &&
         is_in_python_library(frame.file) && has_name(frame, "_bootstrap");
}

const Frame* blamed_frame(const StackTable& stacks, StackId stack) {
  return frame_once(stacks, stack, stacks.blame_memo().stacks, find_blamed);
}

std::vector<const Frame*> calling_frames(const StackTable& stacks, StackId stack) {
  std::vector<const Frame*> callers;
  const Frame* const blamed = blamed_frame(stacks, stack);
  const Frame* before = nullptr;  // of the program's own
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (is_thread_frame(frame) || callers.size() == kMostCallers) break;
    if (blamed == nullptr || frame.kind != blamed->kind) continue;
    const bool is_own = frame.kind == FrameKind::python
                            ? kind_once(stacks, id, [&] { return python_code(frame, stacks.program_code()); }) <=
                                  static_cast<std::uint8_t>(PythonCode::program)
                            : frame.line > 0 && native_code_once(stacks, id) == NativeCode::program;
    if (!is_own) continue;
    if (before != nullptr && (frame.function != before->function || frame.file != before->file))
      callers.push_back(&frame);
    if (before != nullptr || &frame == blamed) before = &frame;
  }
  return callers;
}

const Frame* native_line_frame(const StackTable& stacks, StackId stack) {
  return frame_once(stacks, stack, stacks.blame_memo().native_lines, find_native_line);
}

DoneBy done_by(const StackTable& stacks, StackId stack) {
  constexpr std::uint8_t kUnknown = 0, kFirst = 1;
  std::vector<std::uint8_t>& known = stacks.blame_memo().done_by;
  if (known.size() < stacks.stack_count()) known.resize(stacks.stack_count(), kUnknown);
  std::uint8_t& answer = known.at(static_cast<std::size_t>(stack));
  if (answer == kUnknown) {
    const Frame* blamed = blamed_frame(stacks, stack);
    DoneBy found = DoneBy::itself;
    for (const FrameId id : stacks[stack]) {
      const Frame& frame = stacks[id];
      if (&frame == blamed) break;
      if (is_waiter_frame(frame))
        found = std::max(found, DoneBy::other_thread);
      else if (is_thread_frame(frame))
        found = std::max(found, DoneBy::started_thread);
      if (begins_process(frame)) found = DoneBy::started_process;
    }
    answer = static_cast<std::uint8_t>(kFirst + static_cast<std::uint8_t>(found));
  }
  return static_cast<DoneBy>(answer - kFirst);
}

const Frame* imported_frame(const StackTable& stacks, StackId stack) {
  return frame_once(stacks, stack, stacks.blame_memo().imports, find_imported);
}

namespace {

// Of the user's own files the name is enough; those of packages have names that many have.
std::string shown_path(const StackTable& stacks, const Frame& frame) {
  const std::string_view path =
      frame.kind == FrameKind::python ? path_in_package(frame.file, stacks.program_code().package_folders) : "";
  return path.empty() ? base_name(frame.file) : std::string(path);
}

}  // namespace

std::string code_line(const StackTable& stacks, const Frame* frame) {
  if (frame == nullptr) return "";
  const std::string function = frame->function.empty() ? "" : " in " + frame->function;
  const std::string file = shown_path(stacks, *frame);
  if (!file.empty() && frame->line > 0) return fmt::format("{}:{}{}", file, frame->line, function);
  if (!file.empty()) return file + function;
  const std::string module = module_name(stacks[frame->module].path);
  if (module.empty()) return frame->function;
  if (frame->function.empty()) return fmt::format("{}+{:#x}", module, frame->address);
  return fmt::format("{} ({})", frame->function, module);
}

Received received_as(const StackTable& stacks, StackId stack) {
  static constexpr std::array<PythonFunction, 3> kReceivers{{
      {"/multiprocessing/spawn.py", "_main"},
      {"/multiprocessing/queues.py", "get"},
      {"/multiprocessing/connection.py", "recv"},
  }};
  // In threads of their own, below a receiver.
  static constexpr std::array<PythonFunction, 3> kOfResults{{
      {"/multiprocessing/pool.py", "_handle_results"},
      {"/concurrent/futures/process.py", "wait_result_broken_or_wakeup"},
      {"/loky/process_executor.py", "wait_result_broken_or_wakeup"},
  }};
  Received found = Received::no;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (is_thread_frame(frame)) return found;
    if (frame.kind != FrameKind::python) continue;
    if (found != Received::no) {
      if (is_any_of(frame, kOfResults)) return Received::result;
      continue;
    }
    if (frame.file.starts_with("<frozen ")) return found;  // an import, by an object or by the main module
    if (!is_in_python_library(frame.file)) continue;
    if (frame.file.ends_with("/multiprocessing/process.py")) return found;  // what the process does itself
    if (is_any_of(frame, kReceivers)) found = Received::item;
  }
  return found;
}

bool is_python_object(const StackTable& stacks, StackId stack) {
  bool by_interpreter = false;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (is_thread_frame(frame)) break;
    if (frame.kind == FrameKind::python) return true;
    const std::string& module = stacks[frame.module].path;
    const bool interpreter = is_python_interpreter(module);
    if (!module.empty() && !serves_others(module) && !interpreter) return false;
    by_interpreter |= interpreter;
  }
  return by_interpreter;
}

}  // namespace whyrss
