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

}  // namespace

std::string demangled(const char* name) {
  const std::string_view text(name);
  const bool itanium = text.starts_with("_Z"), rust = text.starts_with("_R");
  if ((!itanium && !rust) || text.size() > kLongestMangledName) return name;
  // Rust's older mangling is valid C++ too, with a hash at its end: Rust is asked first.
  if (const Text readable(rust_demangle(name, DMGL_NO_OPTS), &std::free); readable) return readable.get();
  if (!itanium) return name;
  int status = 0;
  const Text readable(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && readable ? readable.get() : name;
}

}  // namespace whyrss
