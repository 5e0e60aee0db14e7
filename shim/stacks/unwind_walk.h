// Native stacks: the rules of unwind_rules.h, cached per return address in a table that all threads
// share, applied frame by frame until the walk meets the thread's last stack (unwind_memo.h). A warm frame
// costs a table look-up and two loads, one that is met again a load.
// Every address that is read lies between the caller's stack pointer and the end of its stack.
// No locks, no allocation after start; async-signal-safe.
#pragma once

#include <cstdint>

#include "shim/events/caller.h"
#include "shim/stacks/stack_scratch.h"

namespace whyrss::shim {

// Maps the table; walks find only the caller without it. `thread` is entered and Busy held.
void start_unwind_walk() noexcept;

// Around a dlclose. Meanwhile other code may already be where the old one was: nothing cached is used. When
// something was `removed`, all rules are forgotten.
void begin_code_removal() noexcept;
void end_code_removal(bool removed) noexcept;

// True: dlclose ran in another thread, which the child does not have. It will not end, and what it had removed
// is not known.
bool unwind_walk_after_fork_in_child() noexcept;

// Given back in memory: in registers it would be put together from pieces, and the load of the whole waits for all of
// their stores.
struct NativeWalk {
  std::size_t first = 0;  // of the frames in scratch.memo
  std::size_t count = 0;
  bool truncated = false;   // more frames than room
  bool incomplete = false;  // stopped before the thread's start
  bool again = false;       // the same as the one before, to the last word
  bool lasting = false;     // on a stack that can be read as long as the thread runs
};

// The caller (first) and everything that called it, left in scratch.memo from first() on.
NativeWalk walk_native(const Caller& caller, StackScratch& scratch) noexcept;

// Whether a frame of the stack that walk_native left there is a signal handler's return: what lies outside of it was
// interrupted, wherever it was.
bool has_signal_frame(const StackScratch& scratch) noexcept;

}  // namespace whyrss::shim
