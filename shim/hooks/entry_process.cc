// Calls that make, follow or end processes.
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/events/caller.h"
#include "shim/events/guard.h"
#include "shim/events/vfork_child.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/observe/allocator_stats.h"
#include "shim/observe/library_hooks.h"
#include "shim/process/final_walk.h"
#include "shim/process/process_events.h"
#include "shim/process/restriction.h"
#include "shim/process/session.h"
#include "shim/process/teardown.h"
#include "shim/stacks/stack_capture.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

// `frees_locks`: of the allocator, in the child.
[[gnu::always_inline]] inline pid_t fork_observed(const Caller& caller, pid_t (*real_fork)(),
                                                  bool frees_locks) noexcept {
  const bool may_be_locked = allocator_may_be_locked();
  note_fork();
  const pid_t pid = real_fork();
  const int saved_errno = errno;
  if (pid == 0) {
    ThreadState& thread = thread_state();
    if (Busy busy(thread); busy.taken()) attach_forked_child(thread);
    set_allocator_may_be_locked(may_be_locked || !frees_locks);
  } else if (pid > 0) {
    observe_child(caller, trace::RecordKind::fork, static_cast<std::uint32_t>(pid));
  }
  errno = saved_errno;
  return pid;
}

}  // namespace

extern "C" {
// What entry_syscall.S jumps to.
__attribute__((visibility("hidden"))) long (*whyrss_real_syscall)(long, ...) = nullptr;

__attribute__((visibility("hidden")))
pid_t (*whyrss_before_vfork(std::uint64_t ip, std::uint64_t sp, std::uint64_t bp) noexcept)() {
  resolve_real();
  note_vfork();
  observe_child({.ip = ip, .sp = sp, .bp = bp}, trace::RecordKind::spawn, 0);
  return real.vfork;
}
}

}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY pid_t fork() noexcept {
  resolve_real();
  return fork_observed(caller_here(), real.fork, true);
}

WHYRSS_ENTRY pid_t _Fork() noexcept {
  resolve_real();
  if (real._Fork == nullptr) {  // glibc < 2.34
    errno = ENOSYS;
    return -1;
  }
  return fork_observed(caller_here(), real._Fork, false);
}

WHYRSS_ENTRY void _exit(int status) {
  resolve_real();
  observe_exit(status);
  leave_vfork_child();
  real._exit(status);
  __builtin_unreachable();
}

WHYRSS_ENTRY void _Exit(int status) noexcept {
  resolve_real();
  observe_exit(status);
  leave_vfork_child();
  real._Exit(status);
  __builtin_unreachable();
}

// A jump to libc's, not the call of a function that does not return: so exit handlers have no frame of ours below them.
WHYRSS_ENTRY void leave_by_exit(int status) noexcept __asm__("exit");

WHYRSS_ENTRY void leave_by_exit(int status) noexcept {
  resolve_real();
  tear_down_process();
  real.exit(status);
}

// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier)
WHYRSS_ENTRY int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library) noexcept {
  resolve_real();
  const int result = real.__cxa_thread_atexit_impl(destroy, object, library);
  keep_watch_newest();
  return result;
}

WHYRSS_ENTRY void quick_exit(int status) noexcept {
  resolve_real();
  observe_exit(status);
  real.quick_exit(status);
  __builtin_unreachable();
}

WHYRSS_ENTRY int dlclose(void* library) noexcept {
  resolve_real();
  if (real.dlclose == nullptr) resolve_libc_again();
  stacks_before_dlclose();
  const int result = real.dlclose(library);
  stacks_after_dlclose();
  library_hooks_after_dlclose();
  return result;
}
