// Native stacks: the rules of unwind_rules.h, cached per return address in a table that all threads
// share, applied frame by frame. A warm frame costs a table look-up and two loads.
// Every address that is read lies between the caller's stack pointer and the end of its stack.
// No locks, no allocation after start; async-signal-safe.
#pragma once

#include <cstdint>
#include <span>

#include "shim/stack_capture.h"

namespace whyrss::shim {

// Maps the table; walks find only the caller without it. `thread` is entered and Busy held.
void start_unwind_walk() noexcept;

// Forgets all rules: code may have gone.
void forget_unwind_rules() noexcept;

struct NativeWalk {
  std::uint16_t count = 0;
  bool truncated = false;   // more frames than room
  bool incomplete = false;  // stopped before the thread's start
};

// Return addresses and stack pointers of the caller (first) and everything that called it. ips and sps
// are of equal size.
NativeWalk walk_native(const Caller& caller, StackScratch& scratch) noexcept;

}  // namespace whyrss::shim
