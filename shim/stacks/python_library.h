// The interpreter's library, and whether it is one that our tables describe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/stacks/python_layout.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/sys/loaded_images.h"

namespace whyrss::shim {

// Where the functions and variables of the interpreter are looked up: in what the program has in its global scope, in
// the constructor only, or in one image, anywhere.
class Library {
 public:
  Library() noexcept = default;
  explicit Library(const LoadedImage& image) noexcept;

  [[nodiscard]] Symbol symbol(const char* name) const noexcept {
    return of_image_ ? image_.find(name) : find_in_program(name);
  }
  [[nodiscard]] std::byte* address(const char* name) const noexcept { return symbol(name).address; }
  template <class Function>
  bool find(const char* name, Function*& function) const noexcept {
    function = reinterpret_cast<Function*>(address(name));
    return function != nullptr;
  }

 private:
  bool of_image_ = false;
  SymbolTable image_;
};

// A line of text on the stack of a hook; what does not fit is cut off.
class ShortText {
 public:
  ShortText& add(std::string_view piece) noexcept;
  ShortText& add(std::uint64_t number) noexcept;
  [[nodiscard]] std::string_view view() const noexcept { return {bytes_, size_}; }

 private:
  char bytes_[224];
  std::size_t size_ = 0;
};

// Fills in version and version_hex of g_python. False: it does not say.
bool find_python_version(const Library& library) noexcept;

// The row of kPythonLayouts for this version and kind of build, its size when there is none.
std::size_t find_python_row(const Library& library) noexcept;

// Compares a row with static data of the interpreter; calls nothing. False as well for Py_TRACE_REFS builds,
// whose objects have other headers.
bool is_laid_out_as(const Library& library, const PythonLayout& layout) noexcept;

}  // namespace whyrss::shim
