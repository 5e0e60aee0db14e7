// Who touched it first: a perf event per thread that traps each Nth page fault in user mode, at once and in
// the thread that faulted (perf_event_open(2), sigtrap, Linux 5.13). The handler is in touch_signal.cc.
//
// Bias      The first period of a thread is random in 1..N: with N itself, threads with fewer faults than N
//           would never be seen. The handler then opens the event again with N.
// Threads   Each has its own event (inherit would make posix_spawn children die of SIGTRAP), opened as the
//           thread enters the session; a fork child opens its own. vfork and posix_spawn children have none.
// Owner     The event lives as long as the page of it that is mapped: the descriptor is closed at once. The
//           kernel gives that page to no fork child: what the child copied of the address means nothing.
// Blocked   While the program blocks SIGTRAP the event is gone, so that nothing of ours is ever pending.
// Stack     The handler has a stack of its own (touch_stack.h): the kernel's signal frame takes up to 12 KiB, which
//           coroutines and small threads do not have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/events/thread_state.h"
#include "shim/faults/touch_stack.h"

namespace whyrss::shim {

// Of a thread, in memory of its own (own_memory.h).
struct TouchThread {
  void* event_page = nullptr;       // nullptr: not armed
  std::uint64_t generation = 0;     // of the process whose event that is
  std::uint64_t random = 0;         // state of the generator of first periods
  std::uint32_t period_faults = 0;  // that each sample stands for
  bool steady = false;              // the event runs with that period, the random one is over
  bool paused = false;              // SIGTRAP is blocked
  SignalStack signal_stack;
};

// Once per image, in the constructor: installs the handler and arms the calling thread, or says why not.
void start_touch(ThreadState& thread, const char* const* environment) noexcept;

// A thread has entered the session, a fork child has attached: arms it. The caller holds Busy.
void touch_enter_thread(ThreadState& thread) noexcept;
void touch_enter_fork_child(ThreadState& thread) noexcept;

// At the thread's end: event and stack are given back.
void touch_leave_thread(ThreadState& thread) noexcept;

// The event goes away for a while; true: it was there. It comes back when SIGTRAP is not blocked (any more).
bool touch_pause(ThreadState& thread) noexcept;
void touch_resume(ThreadState& thread) noexcept;
// At the end of a handler of the program's own SIGTRAP: the mask that holds now ends with it.
void touch_resume_after_handler(ThreadState& thread) noexcept;

// exec keeps pending and ignored signals: none of ours may be among them.
void touch_before_exec(ThreadState& thread) noexcept;
void touch_after_failed_exec(ThreadState& thread) noexcept;

// The program is about to install a seccomp filter (restriction.h): sampling and counting end for good, in all threads.
// Undone where no filter was installed.
void touch_before_filter(ThreadState& thread) noexcept;
void touch_after_failed_filter(ThreadState& thread) noexcept;

// In the handler, after a sample: goes on with the period that is due now.
void touch_go_on(TouchThread& touch) noexcept;

// The program has set an alternate stack, or none (any more).
void touch_signal_stack_changed(ThreadState& thread, const stack_t& set) noexcept;

// The program takes memory away: no signal of ours goes there any more if it is the thread's alternate stack. Before
// the call. (Memory that is another thread's alternate stack is not looked for: that thread could get any signal.)
void touch_stack_removed(ThreadState& thread) noexcept;
inline void touch_before_removal(ThreadState& thread, const void* memory, std::size_t size_bytes) noexcept {
  const TouchThread* touch = thread.touch;
  if (touch == nullptr || touch->signal_stack.set == nullptr) return;
  const auto set = reinterpret_cast<std::uintptr_t>(touch->signal_stack.set);
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  if (start < set + touch->signal_stack.set_bytes && set < start + size_bytes) touch_stack_removed(thread);
}

// Faults whose sample could not be taken since the last call.
std::uint32_t take_missed_faults() noexcept;
void count_missed_faults(std::uint32_t faults) noexcept;

}  // namespace whyrss::shim
