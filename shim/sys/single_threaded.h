// Whether the program has one thread only, as libc says (__libc_single_threaded of glibc 2.32). The variable is found
// at run time, so that the library also loads where libc has none: there the answer is no, at the cost of bus locks.
#pragma once

namespace whyrss::shim {

extern constinit const char* g_single_threaded;  // never nullptr

// Once, before there is a second thread.
void find_single_threaded() noexcept;

[[gnu::always_inline]] inline bool is_single_threaded() noexcept {
  return *static_cast<const volatile char*>(g_single_threaded) != 0;
}

}  // namespace whyrss::shim
