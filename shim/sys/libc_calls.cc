// What the shim calls of libc by name. A program may define any of these names itself (bash has its own setenv, others
// their own dlopen or dl_iterate_phdr), and its definition comes first wherever a name is bound at run time. So each of
// them is defined here, for this library alone, and jumps to libc's own, which is found in libc's symbol table.
// Linked into libwhyrss.so, not into unit tests. tests/checks/shim_artifact.sh lists what may be imported beside.
#include <dlfcn.h>
#include <fnmatch.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include <atomic>
#include <cerrno>

#include "shim/sys/loaded_images.h"

namespace whyrss::shim {
namespace {

// Threads that search for a function at the same time find the same one.
template <class Function>
Function* libc_function(std::atomic<Function*>& known, const char* name) noexcept {
  Function* function = known.load(std::memory_order_acquire);
  if (function == nullptr && set_found(function, find_in_libc(name))) known.store(function, std::memory_order_release);
  return function;
}

}  // namespace
}  // namespace whyrss::shim

#define WHYRSS_LIBC(result, name, parameters, arguments)                           \
  result name parameters {                                                         \
    static constinit std::atomic<result(*) parameters> known{nullptr};             \
    return whyrss::shim::libc_function<result parameters>(known, #name) arguments; \
  }

// Before glibc 2.34 in libpthread or libdl, which the program need not have loaded: then the result is `absent`.
#define WHYRSS_LATE_LIBC(result, name, parameters, arguments, absent)                    \
  result name parameters {                                                               \
    static constinit std::atomic<result(*) parameters> known{nullptr};                   \
    auto* const function = whyrss::shim::libc_function<result parameters>(known, #name); \
    return function != nullptr ? function arguments : absent;                            \
  }

// NOLINTBEGIN(readability-identifier-naming,readability-inconsistent-declaration-parameter-name): libc's names
extern "C" {
WHYRSS_LIBC(int*, __errno_location, (), ())
WHYRSS_LATE_LIBC(void*, dlopen, (const char* path, int mode), (path, mode), nullptr)
WHYRSS_LIBC(int, dl_iterate_phdr, (int (*visit)(dl_phdr_info*, std::size_t, void*), void* data), (visit, data))
WHYRSS_LIBC(unsigned long, getauxval, (unsigned long type), (type))
WHYRSS_LIBC(int, fnmatch, (const char* pattern, const char* text, int flags), (pattern, text, flags))
WHYRSS_LIBC(int, malloc_trim, (std::size_t pad), (pad))
WHYRSS_LIBC(int, on_exit, (void (*function)(int, void*), void* argument), (function, argument))
WHYRSS_LATE_LIBC(int, pthread_key_create, (pthread_key_t * key, void (*destroy)(void*)), (key, destroy), EAGAIN)
WHYRSS_LIBC(int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value))
WHYRSS_LIBC(int, sigemptyset, (sigset_t * set), (set))
WHYRSS_LIBC(int, sigaddset, (sigset_t * set, int signal), (set, signal))
WHYRSS_LIBC(int, sigdelset, (sigset_t * set, int signal), (set, signal))
WHYRSS_LIBC(int, sigismember, (const sigset_t* set, int signal), (set, signal))
}
// NOLINTEND(readability-identifier-naming,readability-inconsistent-declaration-parameter-name)
