// The next definition of every function we interpose: one typed table, filled from the images' own symbol tables
// (loaded_images.h), which calls nothing of the program's: its malloc may be what calls us, under a lock of its own.
// A missing one stays nullptr (an older libc, a C program without operator new); its entry then falls back to the
// nearest function that exists.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

struct _IO_FILE;  // <stdio.h> calls it FILE

namespace whyrss::shim {

using Nothrow = const void*;
using StartRoutine = void* (*)(void*);
using SignalHandler = void (*)(int);

// One list: field and symbol name, result, parameters.
#define WHYRSS_REAL_FUNCTIONS(X)                                                                                    \
  X(malloc, void*, (std::size_t))                                                                                   \
  X(calloc, void*, (std::size_t, std::size_t))                                                                      \
  X(realloc, void*, (void*, std::size_t))                                                                           \
  X(reallocarray, void*, (void*, std::size_t, std::size_t))                                                         \
  X(free, void, (void*))                                                                                            \
  X(posix_memalign, int, (void**, std::size_t, std::size_t))                                                        \
  X(aligned_alloc, void*, (std::size_t, std::size_t))                                                               \
  X(memalign, void*, (std::size_t, std::size_t))                                                                    \
  X(valloc, void*, (std::size_t))                                                                                   \
  X(pvalloc, void*, (std::size_t))                                                                                  \
  X(free_sized, void, (void*, std::size_t))                                                                         \
  X(free_aligned_sized, void, (void*, std::size_t, std::size_t))                                                    \
  X(malloc_usable_size, std::size_t, (void*))                                                                       \
  X(mallocx, void*, (std::size_t, int))                                                                             \
  X(rallocx, void*, (void*, std::size_t, int))                                                                      \
  X(dallocx, void, (void*, int))                                                                                    \
  X(sdallocx, void, (void*, std::size_t, int))                                                                      \
  X(_Znwm, void*, (std::size_t))                                                                                    \
  X(_Znam, void*, (std::size_t))                                                                                    \
  X(_ZnwmRKSt9nothrow_t, void*, (std::size_t, Nothrow))                                                             \
  X(_ZnamRKSt9nothrow_t, void*, (std::size_t, Nothrow))                                                             \
  X(_ZnwmSt11align_val_t, void*, (std::size_t, std::size_t))                                                        \
  X(_ZnamSt11align_val_t, void*, (std::size_t, std::size_t))                                                        \
  X(_ZnwmSt11align_val_tRKSt9nothrow_t, void*, (std::size_t, std::size_t, Nothrow))                                 \
  X(_ZnamSt11align_val_tRKSt9nothrow_t, void*, (std::size_t, std::size_t, Nothrow))                                 \
  X(_ZdlPv, void, (void*))                                                                                          \
  X(_ZdaPv, void, (void*))                                                                                          \
  X(_ZdlPvRKSt9nothrow_t, void, (void*, Nothrow))                                                                   \
  X(_ZdaPvRKSt9nothrow_t, void, (void*, Nothrow))                                                                   \
  X(_ZdlPvm, void, (void*, std::size_t))                                                                            \
  X(_ZdaPvm, void, (void*, std::size_t))                                                                            \
  X(_ZdlPvSt11align_val_t, void, (void*, std::size_t))                                                              \
  X(_ZdaPvSt11align_val_t, void, (void*, std::size_t))                                                              \
  X(_ZdlPvSt11align_val_tRKSt9nothrow_t, void, (void*, std::size_t, Nothrow))                                       \
  X(_ZdaPvSt11align_val_tRKSt9nothrow_t, void, (void*, std::size_t, Nothrow))                                       \
  X(_ZdlPvmSt11align_val_t, void, (void*, std::size_t, std::size_t))                                                \
  X(_ZdaPvmSt11align_val_t, void, (void*, std::size_t, std::size_t))                                                \
  X(mmap, void*, (void*, std::size_t, int, int, int, off_t))                                                        \
  X(mmap64, void*, (void*, std::size_t, int, int, int, off64_t))                                                    \
  X(munmap, int, (void*, std::size_t))                                                                              \
  X(mremap, void*, (void*, std::size_t, std::size_t, int, ...))                                                     \
  X(mprotect, int, (void*, std::size_t, int))                                                                       \
  X(madvise, int, (void*, std::size_t, int))                                                                        \
  X(posix_madvise, int, (void*, std::size_t, int))                                                                  \
  X(brk, int, (void*))                                                                                              \
  X(sbrk, void*, (std::intptr_t))                                                                                   \
  X(shmat, void*, (int, const void*, int))                                                                          \
  X(shmdt, int, (const void*))                                                                                      \
  X(memfd_create, int, (const char*, unsigned))                                                                     \
  X(open, int, (const char*, int, ...))                                                                             \
  X(open64, int, (const char*, int, ...))                                                                           \
  X(openat, int, (int, const char*, int, ...))                                                                      \
  X(openat64, int, (int, const char*, int, ...))                                                                    \
  X(creat, int, (const char*, mode_t))                                                                              \
  X(creat64, int, (const char*, mode_t))                                                                            \
  X(fopen, _IO_FILE*, (const char*, const char*))                                                                   \
  X(fopen64, _IO_FILE*, (const char*, const char*))                                                                 \
  X(fileno, int, (_IO_FILE*))                                                                                       \
  X(read, ssize_t, (int, void*, std::size_t))                                                                       \
  X(pread64, ssize_t, (int, void*, std::size_t, off64_t))                                                           \
  X(readv, ssize_t, (int, const iovec*, int))                                                                       \
  X(preadv64, ssize_t, (int, const iovec*, int, off64_t))                                                           \
  X(preadv64v2, ssize_t, (int, const iovec*, int, off64_t, int))                                                    \
  X(recv, ssize_t, (int, void*, std::size_t, int))                                                                  \
  X(recvfrom, ssize_t, (int, void*, std::size_t, int, sockaddr*, socklen_t*))                                       \
  X(recvmsg, ssize_t, (int, msghdr*, int))                                                                          \
  X(fread, std::size_t, (void*, std::size_t, std::size_t, _IO_FILE*))                                               \
  X(fread_unlocked, std::size_t, (void*, std::size_t, std::size_t, _IO_FILE*))                                      \
  X(__read_chk, ssize_t, (int, void*, std::size_t, std::size_t))                                                    \
  X(__pread64_chk, ssize_t, (int, void*, std::size_t, off64_t, std::size_t))                                        \
  X(__recv_chk, ssize_t, (int, void*, std::size_t, std::size_t, int))                                               \
  X(__recvfrom_chk, ssize_t, (int, void*, std::size_t, std::size_t, int, sockaddr*, socklen_t*))                    \
  X(__fread_chk, std::size_t, (void*, std::size_t, std::size_t, std::size_t, _IO_FILE*))                            \
  X(__fread_unlocked_chk, std::size_t, (void*, std::size_t, std::size_t, std::size_t, _IO_FILE*))                   \
  X(mlock, int, (const void*, std::size_t))                                                                         \
  X(mlock2, int, (const void*, std::size_t, unsigned))                                                              \
  X(mlockall, int, (int))                                                                                           \
  X(prctl, int, (int, ...))                                                                                         \
  X(fork, pid_t, ())                                                                                                \
  X(_Fork, pid_t, ())                                                                                               \
  X(vfork, pid_t, ())                                                                                               \
  X(syscall, long, (long, ...))                                                                                     \
  X(posix_spawn, int,                                                                                               \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*)) \
  X(posix_spawnp, int,                                                                                              \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*)) \
  X(execve, int, (const char*, char* const*, char* const*))                                                         \
  X(execvpe, int, (const char*, char* const*, char* const*))                                                        \
  X(fexecve, int, (int, char* const*, char* const*))                                                                \
  X(execveat, int, (int, const char*, char* const*, char* const*, int))                                             \
  X(_exit, void, (int))                                                                                             \
  X(_Exit, void, (int))                                                                                             \
  X(exit, void, (int))                                                                                              \
  X(quick_exit, void, (int))                                                                                        \
  X(__cxa_thread_atexit_impl, int, (void (*)(void*), void*, void*))                                                 \
  X(wait4, pid_t, (pid_t, int*, int, struct rusage*))                                                               \
  X(waitid, int, (idtype_t, id_t, siginfo_t*, int))                                                                 \
  X(pthread_create, int, (pthread_t*, const pthread_attr_t*, StartRoutine, void*))                                  \
  X(sigaction, int, (int, const struct sigaction*, struct sigaction*))                                              \
  X(signal, SignalHandler, (int, SignalHandler))                                                                    \
  X(sysv_signal, SignalHandler, (int, SignalHandler))                                                               \
  X(sigignore, int, (int))                                                                                          \
  X(sigprocmask, int, (int, const sigset_t*, sigset_t*))                                                            \
  X(pthread_sigmask, int, (int, const sigset_t*, sigset_t*))                                                        \
  X(sigaltstack, int, (const stack_t*, stack_t*))                                                                   \
  X(dlclose, int, (void*))                                                                                          \
  X(dlsym, void*, (void*, const char*))                                                                             \
  X(dlvsym, void*, (void*, const char*, const char*))

struct Real {
#define WHYRSS_FIELD(name, result, parameters) result(*name) parameters = nullptr;
  WHYRSS_REAL_FUNCTIONS(WHYRSS_FIELD)
#undef WHYRSS_FIELD
};

// malloc and free are never nullptr: before the table is filled they fill it first.
extern Real real;

extern constinit std::atomic<bool> g_is_resolved;
void fill_real() noexcept;

// Fills the table before its first use. Threads that do it at the same time find the same.
inline void resolve_real() noexcept {
  if (!g_is_resolved.load(std::memory_order_acquire)) [[unlikely]]
    fill_real();
}

// Searches again for operator new and delete: a C program may have loaded the C++ runtime meanwhile.
void resolve_cxx_again() noexcept;

// Searches again for what libpthread and libdl hold before glibc 2.34: the program may have loaded them meanwhile.
void resolve_libc_again() noexcept;

}  // namespace whyrss::shim
