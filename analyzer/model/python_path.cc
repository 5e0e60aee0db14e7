#include "model/python_path.h"

#include <algorithm>
#include <array>

namespace whyrss {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Where the part of the path below the packages begins; npos: it is of no package.
std::size_t below_packages(std::string_view file, const PackageFolderList& folders = {}) {
  constexpr std::array<std::string_view, 2> kFolders{"/site-packages/", "/dist-packages/"};
  std::size_t below = std::string_view::npos;
  for (const std::string_view folder : kFolders)
    if (const std::size_t at = file.rfind(folder); at != std::string_view::npos)
      below = below == std::string_view::npos ? at + folder.size() : std::max(below, at + folder.size());
  if (below != std::string_view::npos) return below;
  const auto folder = std::ranges::find_if(folders, [&](const std::string& one) { return file.starts_with(one); });
  return folder == folders.end() ? below : folder->size();
}

// The same of the standard library: behind ".../lib/python3.11/", also of lib64, and of python3.13t.
std::size_t below_library(std::string_view file) {
  constexpr std::string_view kName = "/python";
  for (std::size_t at = file.find(kName); at != std::string_view::npos; at = file.find(kName, at + 1)) {
    const std::string_view before = file.substr(0, at);
    if (!before.ends_with("/lib") && !before.ends_with("/lib64")) continue;
    const std::size_t end = file.find('/', at + 1);
    const std::string_view version = file.substr(at + kName.size(), end - at - kName.size());
    const bool has_minor = version.find('.') != std::string_view::npos;
    if (end != std::string_view::npos && has_minor && is_digit(version.front())) return end + 1;
  }
  return std::string_view::npos;
}

// Typed in, a cell of a notebook, or a function that cloudpickle sent to another process.
bool is_interactive(std::string_view file) {
  constexpr std::array<std::string_view, 6> kNames{"<stdin>",        "<console>", "<input>",
                                                   "<ipython-input", "<cell",     "<dynamic-code>"};
  return std::ranges::any_of(kNames, [&](std::string_view name) { return file.starts_with(name); });
}

}  // namespace

bool is_in_python_library(std::string_view file) {
  return below_packages(file) == std::string_view::npos && below_library(file) != std::string_view::npos;
}

PythonOrigin python_origin(std::string_view file, const PackageFolderList& folders) {
  if (file.starts_with("<frozen ")) return PythonOrigin::frozen;
  if (file.starts_with('<') && !is_interactive(file)) return PythonOrigin::generated;
  if (below_packages(file, folders) != std::string_view::npos) return PythonOrigin::package;
  return is_in_python_library(file) ? PythonOrigin::standard_library : PythonOrigin::user;
}

std::string_view path_in_package(std::string_view file, const PackageFolderList& folders) {
  std::size_t below = below_packages(file, folders);
  if (below == std::string_view::npos) below = below_library(file);
  return below == std::string_view::npos ? "" : file.substr(below);
}

std::string_view top_package(std::string_view file, const PackageFolderList& folders) {
  const std::string_view path = path_in_package(file, folders);
  if (path.empty()) return "";
  const std::size_t slash = path.find('/');
  return slash == std::string_view::npos ? file : file.substr(0, file.size() - path.size() + slash + 1);
}

}  // namespace whyrss
