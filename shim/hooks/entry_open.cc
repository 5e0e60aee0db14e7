// Calls that make files, of which those in /dev/shm are memory. They are cancellation points, and may be called in
// signal handlers: nothing is held while the real function runs.
#include <fcntl.h>

#include <cstdarg>

#include "shim/events/caller.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/observe/observe.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

bool takes_mode(int flags) noexcept { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

bool may_empty(int flags) noexcept { return takes_mode(flags) || (flags & O_TRUNC) != 0; }
bool may_empty(const char* mode) noexcept { return *mode != 'r'; }

// Only of a path with which a call has succeeded: others may be no address.
bool may_be_in_shared_memory(const char* path) noexcept {
  if (*path != '/') return true;
  for (const char c : {'/', 'd', 'e', 'v', '/', 's', 'h', 'm'})
    if (*path++ != c) return false;
  return *path == '/' || *path == '\0';
}

[[gnu::always_inline]] inline int opened(int fd, const char* path, bool is_empty) noexcept {
  if (is_empty && fd >= 0 && may_be_in_shared_memory(path)) [[unlikely]]
    observe_empty_file(caller_here(), fd);
  return fd;
}

[[gnu::always_inline]] inline _IO_FILE* opened(_IO_FILE* file, const char* path, const char* mode) noexcept {
  if (file != nullptr && may_empty(mode)) opened(real.fileno(file), path, true);
  return file;
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

// NOLINTBEGIN(cert-dcl50-cpp, cppcoreguidelines-pro-type-vararg): libc's signatures
#define WHYRSS_OPEN_ENTRY(name, parameters, ...)                                \
  WHYRSS_ENTRY int name parameters {                                            \
    va_list rest;                                                               \
    va_start(rest, flags);                                                      \
    const mode_t mode = takes_mode(flags) ? va_arg(rest, mode_t) : 0;           \
    va_end(rest);                                                               \
    resolve_real();                                                             \
    return opened(real.name(__VA_ARGS__, flags, mode), path, may_empty(flags)); \
  }

WHYRSS_OPEN_ENTRY(open, (const char* path, int flags, ...), path)
WHYRSS_OPEN_ENTRY(open64, (const char* path, int flags, ...), path)
WHYRSS_OPEN_ENTRY(openat, (int directory, const char* path, int flags, ...), directory, path)
WHYRSS_OPEN_ENTRY(openat64, (int directory, const char* path, int flags, ...), directory, path)
// NOLINTEND(cert-dcl50-cpp, cppcoreguidelines-pro-type-vararg)

WHYRSS_ENTRY int creat(const char* path, mode_t mode) {
  resolve_real();
  return opened(real.creat(path, mode), path, true);
}

WHYRSS_ENTRY int creat64(const char* path, mode_t mode) {
  resolve_real();
  return opened(real.creat64(path, mode), path, true);
}

WHYRSS_ENTRY _IO_FILE* fopen(const char* path, const char* mode) {
  resolve_real();
  return opened(real.fopen(path, mode), path, mode);
}

WHYRSS_ENTRY _IO_FILE* fopen64(const char* path, const char* mode) {
  resolve_real();
  return opened(real.fopen64(path, mode), path, mode);
}
