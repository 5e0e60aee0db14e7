// Linked in where whyrss is static, with --wrap=dlopen: its libraries look for others at run time (libdw for
// libdebuginfod, which we do not use), and what is there belongs to another libc.
#include <stddef.h>

void* __wrap_dlopen(const char* path, int mode);  // NOLINT(bugprone-reserved-identifier): the linker's name

void* __wrap_dlopen(const char* path, int mode) {  // NOLINT(bugprone-reserved-identifier)
  (void)path;
  (void)mode;
  return NULL;
}
