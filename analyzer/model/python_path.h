// What the path of a Python file says about whose code it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whyrss {

enum class PythonOrigin : std::uint8_t {
  user,
  package,    // below site-packages, dist-packages or another folder of packages
  generated,  // of a compiled string: the methods of a dataclass or a namedtuple, a template
  standard_library,
  frozen,
};
// Here and below: `folders` hold packages whatever their names are, with their slashes.
using PackageFolderList = std::vector<std::string>;
PythonOrigin python_origin(std::string_view file, const PackageFolderList& folders = {});

// .../lib/python3.11/json/__init__.py but not .../lib/python3.11/site-packages/...
bool is_in_python_library(std::string_view file);

// Of a package or the standard library: its path from the package on, "json/decoder.py". "" for others.
std::string_view path_in_package(std::string_view file, const PackageFolderList& folders = {});

// Of a package or the standard library: the top package that the file belongs to, as a folder with its slash, or the
// file itself where it is a module of its own. "" for others.
std::string_view top_package(std::string_view file, const PackageFolderList& folders = {});

}  // namespace whyrss
