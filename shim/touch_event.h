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
// Stack     The handler has a stack of its own (sigaltstack), where the program set none: the kernel's
//           signal frame takes up to 12 KiB, which coroutines and small threads do not have.
#pragma once

#include <cstdint>

#include "shim/thread_state.h"

namespace whyrss::shim {

// Of a thread, in memory of its own (own_memory.h).
struct TouchThread {
  void* event_page = nullptr;       // nullptr: not armed
  std::uint64_t generation = 0;     // of the process whose event that is
  std::uint64_t random = 0;         // state of the generator of first periods
  std::uint32_t period_faults = 0;  // that each sample stands for
  bool steady = false;              // the event runs with that period, the random one is over
  bool paused = false;              // SIGTRAP is blocked, or the alternate stack is too small
  bool has_own_stack = false;       // `stack` is the thread's alternate stack
  // Only what is used becomes resident. Handlers of the program that ask for an alternate stack and set none
  // run here too, and expect the room of a thread.
  alignas(4096) unsigned char stack[256 * 1024] = {};
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

// Whether the alternate stack is the one that start_stack installed; puts it (back) in place.
bool is_touch_stack(const TouchThread& touch, const void* stack) noexcept;
void install_touch_stack(TouchThread& touch) noexcept;

// Bytes that an alternate stack of the program must have for our handler to run there.
std::uint64_t smallest_signal_stack_bytes() noexcept;

// Faults whose sample could not be taken since the last call.
std::uint32_t take_missed_faults() noexcept;
void count_missed_faults(std::uint32_t faults) noexcept;

}  // namespace whyrss::shim
