// The interpreter's library, and whether it is one that our tables describe.
#pragma once

#include <dlfcn.h>

#include <cstddef>

#include "shim/python_tables.h"

namespace whyrss::shim {

// Where the functions and variables of the interpreter are looked up: constructor time only (dlsym locks).
class Library {
 public:
  explicit Library(void* handle) noexcept : handle_(handle) {}

  template <class Function>
  bool find(const char* name, Function*& function) const noexcept {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    return function != nullptr;
  }
  [[nodiscard]] std::byte* address(const char* name) const noexcept {
    return static_cast<std::byte*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

// Fills in version and version_hex of g_python. False: it does not say.
bool find_python_version(const Library& library) noexcept;

// The row of kPythonLayouts for this version and kind of build, its size when there is none.
std::size_t find_python_row(const Library& library) noexcept;

// Compares a row with static data of the interpreter; calls nothing. False as well for Py_TRACE_REFS builds,
// whose objects have other headers.
bool is_laid_out_as(const Library& library, const PythonLayout& layout) noexcept;

}  // namespace whyrss::shim
