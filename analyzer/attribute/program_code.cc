#include "attribute/program_code.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "model/python_path.h"

namespace whyrss {
namespace {

constexpr std::string_view kModuleLevel = "<module>";

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "cli" of "Group.cli", as CPython names a method from 3.11 on.
std::string_view plain_function(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool is_run_as_module(const Frame& frame) {
  return frame.file == "<frozen runpy>" || (last_part(frame.file) == "runpy.py" && is_in_python_library(frame.file));
}

bool is_of_multiprocessing(const Frame& frame) {
  return frame.file.find("/multiprocessing/") != std::string::npos && is_in_python_library(frame.file);
}

bool is_command(std::string_view file) {
  constexpr std::array<std::string_view, 4> kFolders{"bin", "sbin", "games", "libexec"};
  const std::size_t slash = file.rfind('/');
  if (slash == std::string_view::npos) return false;
  return std::ranges::find(kFolders, last_part(file.substr(0, slash))) != kFolders.end();
}

// What scripts that pip or Debian make call.
bool is_entry_point(std::string_view function) {
  constexpr std::array<std::string_view, 9> kNames{
      "main", "_main", "cli", "run", "run_main", "console_main", "app", "start", "execute_from_command_line"};
  return std::ranges::find(kNames, plain_function(function)) != kNames.end();
}

// Libraries that call an entry point by what the command line says.
bool dispatches(std::string_view package) {
  constexpr std::array<std::string_view, 6> kNames{"click", "typer", "rich_click", "fire", "absl", "cleo"};
  return std::ranges::find(kNames, package) != kNames.end();
}

// "jupyterlab" of jupyter-lab, Jupyter_Lab/ and jupyterlab.py.
std::string plain_name(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  std::string_view name = last_part(path);
  if (name.ends_with(".py")) name.remove_suffix(3);
  std::string plain;
  for (const char letter : name)
    if (letter != '-' && letter != '_' && letter != '.')
      plain += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return plain;
}

class Search {
 public:
  Search(const StackTable& stacks, const std::set<std::string>& package_folders)
      : stacks_(stacks), folders_(package_folders.begin(), package_folders.end()) {}

  ProgramCode find() {
    for (std::uint32_t i = 1; i < stacks_.frame_count(); ++i) note_function(stacks_[FrameId{i}]);
    if (!folders_.empty())
      for (std::uint32_t i = 1; i < stacks_.stack_count(); ++i) leave_out_folder(stacks_[StackId{i}]);
    for (std::uint32_t i = 1; has_python_ && i < stacks_.stack_count(); ++i) read(stacks_[StackId{i}]);
    return {.places = {places_.begin(), places_.end()},
            .launchers = {launchers_.begin(), launchers_.end()},
            .package_folders = std::move(folders_)};
  }

 private:
  using Stack = std::vector<FrameId>;

  void note_function(const Frame& frame) {
    if (frame.kind != FrameKind::python) return;
    has_python_ = true;
    if (frame.function != kModuleLevel && is_command(frame.file)) with_functions_.insert(frame.file);
  }

  // The next Python frame from `at` inwards; null: there is none.
  const Frame* next_inner(const Stack& stack, Stack::const_reverse_iterator& at) const {
    for (; at != stack.rend(); ++at)
      if (const Frame& frame = stacks_[*at]; frame.kind == FrameKind::python) {
        ++at;
        return &frame;
      }
    return nullptr;
  }

  // The main module is no package there.
  void leave_out_folder(const Stack& stack) {
    auto at = stack.rbegin();
    const Frame* frame = next_inner(stack, at);
    while (frame != nullptr && is_run_as_module(*frame)) frame = next_inner(stack, at);
    if (frame == nullptr || frame->function != kModuleLevel) return;
    const std::string_view folder = std::string_view(frame->file).substr(0, frame->file.rfind('/') + 1);
    std::erase(folders_, folder);
  }

  void read(const Stack& stack) {
    auto at = stack.rbegin();
    const Frame* frame = next_inner(stack, at);
    if (frame == nullptr) return;
    const bool as_module = is_run_as_module(*frame);
    while (frame != nullptr && is_run_as_module(*frame)) frame = next_inner(stack, at);
    if (frame == nullptr || frame->function != kModuleLevel) return;
    const PythonOrigin origin = python_origin(frame->file, folders_);
    if (origin == PythonOrigin::generated) return read_string(*frame, next_inner(stack, at));
    if (origin == PythonOrigin::package || origin == PythonOrigin::standard_library) return add_place(*frame);
    if (origin == PythonOrigin::user && !as_module && is_command(frame->file) && !with_functions_.contains(frame->file))
      read_launched(*frame, stack, at);
  }

  // multiprocessing starts its processes by `python -c` too.
  void read_string(const Frame& frame, const Frame* inner) {
    if (inner == nullptr || !is_of_multiprocessing(*inner)) places_.insert(frame.file);
  }

  void read_launched(const Frame& launcher, const Stack& stack, Stack::const_reverse_iterator at) {
    const std::string name = plain_name(launcher.file);
    bool may_be_entry = true, by_any_name = false;
    while (const Frame* frame = next_inner(stack, at)) {
      const std::string_view package = top_package(frame->file, folders_);
      const bool is_package = python_origin(frame->file, folders_) == PythonOrigin::package;
      const bool is_dispatcher = is_package && dispatches(plain_name(package));
      const bool is_entry =
          may_be_entry && is_package && !is_dispatcher && (by_any_name || is_entry_point(frame->function));
      if (is_entry || (is_package && plain_name(package) == name)) {
        add_place(*frame);
        launchers_.insert(launcher.file);
      }
      by_any_name = is_dispatcher && frame->function != kModuleLevel;
      may_be_entry = by_any_name;
    }
  }

  void add_place(const Frame& frame) { places_.emplace(top_package(frame.file, folders_)); }

  const StackTable& stacks_;
  bool has_python_ = false;
  PackageFolderList folders_;
  std::set<std::string> with_functions_, places_, launchers_;
};

}  // namespace

ProgramCode find_program_code(const StackTable& stacks, const std::set<std::string>& package_folders) {
  return Search(stacks, package_folders).find();
}

}  // namespace whyrss
