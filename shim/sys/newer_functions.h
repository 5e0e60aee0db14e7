// Stand-ins for functions that an older libc does not have, down to glibc 2.17. A program that asks whether libc has
// them (a weak reference of libstdc++ or Rust) finds our entries, so these must do what is promised.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace whyrss::shim {

// As the kernels of that time: ENOSYS.
ssize_t no_preadv64v2(int fd, const iovec* buffers, int count, off64_t offset, int flags) noexcept;
int no_mlock2(const void* address, std::size_t size, unsigned flags) noexcept;

// memfd_create (glibc 2.27): the system call, which Linux 3.17 has.
int make_memfd(const char* name, unsigned flags) noexcept;

// __cxa_thread_atexit_impl (glibc 2.18): runs `destroy` when the calling thread ends, or the process if it is the
// thread that calls exit(). 0: done.
int run_at_thread_end(void (*destroy)(void*), void* object, void* library) noexcept;

}  // namespace whyrss::shim
