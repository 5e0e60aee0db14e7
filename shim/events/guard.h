// Keeps the shim out of its own way: while our code runs in a thread, hooks that it triggers (or that a
// signal handler triggers on top of it) pass straight through.
// A longjmp out of a signal handler can leave the guard behind. It remembers where on the stack it was
// taken: when the stack is not longer than that again (and it is the same stack), its frame is gone and the
// guard with it: two guards that live at a time are never at one place. A handler's alternate stack may lie
// just above the thread's: the kernel is asked.
#pragma once

#include <signal.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdint>

#include "shim/events/thread_state.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {

class Busy {
 public:
  [[gnu::always_inline]] explicit Busy(ThreadState& thread) noexcept : thread_(thread) {
    auto here = reinterpret_cast<std::uintptr_t>(this);
    __asm__("" : "+r"(here));  // from here on a number, not a pointer that outlives this
    if (thread.busy_sp != 0 && !is_stale(thread.busy_sp, here)) return;
    thread.busy_sp = here;
    taken_ = true;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() {
    if (taken_) thread_.busy_sp = 0;
  }
  // False: our own code is below us on the stack.
  [[nodiscard]] bool taken() const noexcept { return taken_; }

 private:
  // Frames of one stack lie within its size; 8 MiB is the usual limit.
  static bool is_stale(std::uintptr_t guard_sp, std::uintptr_t here) noexcept {
    return here >= guard_sp && here - guard_sp < (std::uintptr_t{8} << 20) && !interrupted_from_another_stack(guard_sp);
  }

  // True in a handler on an alternate stack when the guard was taken outside that stack: it was interrupted.
  // sigaltstack(2): SS_ONSTACK while the thread runs on it. (Not reported for an SS_AUTODISARM stack.) Where no system
  // call is possible, the answer is true: a guard that a longjmp left behind then holds, and the thread writes no more.
  [[gnu::noinline]] static bool interrupted_from_another_stack(std::uintptr_t guard_sp) noexcept {
    stack_t now{};
    if (is_raw_error(own_syscall(SYS_sigaltstack, 0, as_long(&now)))) return trace::is_kernel_closed();
    if ((now.ss_flags & SS_ONSTACK) == 0) return false;
    return guard_sp - reinterpret_cast<std::uintptr_t>(now.ss_sp) >= now.ss_size;
  }

  ThreadState& thread_;
  bool taken_ = false;
};

// The same where the guard is known to be free, for a few instructions that call nothing. A signal's frame is larger
// than kBelow, so that a guard of its handler lies lower; that of a later call of ours from here does not.
class BusyBriefly {
 public:
  [[gnu::always_inline]] explicit BusyBriefly(ThreadState& thread) noexcept : thread_(thread) {
    std::uintptr_t here = 0;
    __asm__("mov %%rsp, %0" : "=r"(here));
    thread.busy_sp = here - kBelow;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  BusyBriefly(const BusyBriefly&) = delete;
  BusyBriefly& operator=(const BusyBriefly&) = delete;
  [[gnu::always_inline]] ~BusyBriefly() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    thread_.busy_sp = 0;
  }

 private:
  static constexpr std::uintptr_t kBelow = 512;

  ThreadState& thread_;
};

}  // namespace whyrss::shim
