#include "symbolize/demangle.h"

#include <cxxabi.h>
#define HAVE_DECL_BASENAME 1  // libiberty's own declaration contradicts glibc's
#include <libiberty/demangle.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace whyrss {
namespace {

// Longer mangled names are not worth the demangler's time and stack.
constexpr std::size_t kLongestMangledName = 4096;

using Text = std::unique_ptr<char, decltype(&std::free)>;

// "<length><name>_" for each scope, then the function, in classes with its number before it: 5cyjob_1keep_rows
// (Cython/Compiler/Symtab.py, mangle).
std::string name_of_cython(std::string_view text) {
  std::string name;
  while (true) {
    std::size_t length = 0, digits = 0;
    while (digits < text.size() && digits < 4 && text[digits] >= '0' && text[digits] <= '9')
      length = length * 10 + static_cast<std::size_t>(text[digits++] - '0');
    const bool is_scope = digits > 0 && length > 0 && digits + length < text.size() && text[digits + length] == '_';
    if (!is_scope) {
      text.remove_prefix(digits);
      return text.empty() || (text[0] >= '0' && text[0] <= '9') ? "" : name.append(text);
    }
    name.append(text.substr(digits, length)).append(".");
    text.remove_prefix(digits + length + 1);
  }
}

// Modules, classes and functions with "___" between them (mypyc/namegen.py).
std::string name_of_mypyc(std::string_view text) {
  constexpr std::string_view kBetween = "___";
  std::string name;
  for (std::size_t at = text.find(kBetween); at != std::string_view::npos; at = text.find(kBetween)) {
    name.append(text.substr(0, at)).append(".");
    text.remove_prefix(at + kBetween.size());
  }
  return name.append(text);
}

// Of a function of a compiled Python module; empty: it is none.
std::string name_in_python(std::string_view text) {
  for (const std::string_view prefix : {"__pyx_pf_", "__pyx_pw_", "__pyx_f_", "__pyx_fuse_"})
    if (text.starts_with(prefix)) return name_of_cython(text.substr(prefix.size()));
  for (const std::string_view prefix : {"CPyDef_", "CPyPy_"})
    if (text.starts_with(prefix)) return name_of_mypyc(text.substr(prefix.size()));
  return "";
}

}  // namespace

std::string demangled(const char* name) {
  const std::string_view text(name);
  const bool itanium = text.starts_with("_Z"), rust = text.starts_with("_R");
  if (text.size() > kLongestMangledName) return name;
  if (!itanium && !rust) {
    std::string in_python = name_in_python(text);
    return in_python.empty() ? name : in_python;
  }
  // Rust's older mangling is valid C++ too, with a hash at its end: Rust is asked first.
  if (const Text readable(rust_demangle(name, DMGL_NO_OPTS), &std::free); readable) return readable.get();
  if (!itanium) return name;
  int status = 0;
  const Text readable(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && readable ? readable.get() : name;
}

}  // namespace whyrss
