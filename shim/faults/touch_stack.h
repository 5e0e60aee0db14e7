// The alternate signal stacks that SIGTRAP arrives on. The kernel writes its frame there before the handler can check
// the stack, so the event may run only while that memory is a stack for certain: ours, or one that the program has set
// and has neither given back nor made on a frame of its own that may be gone.
//
//   none set by the program   ours is installed, and sigaltstack reports none to the program
//   one set                   it takes the frame; the rest of the handler runs on ours, with all signals blocked, so
//                             that 4 KiB of the program's are enough
//   unmapped, freed           unfit: no event until the program sets another one
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "shim/events/thread_state.h"

namespace whyrss::shim {

// Of a thread, in memory of its own (own_memory.h).
struct SignalStack {
  const void* set = nullptr;  // by the program; nullptr: none
  std::size_t set_bytes = 0;
  bool unfit = false;    // what is set may not take a frame
  bool has_own = false;  // `stack` is the thread's alternate stack
  // Only what is used becomes resident. Handlers of the program that ask for an alternate stack and set none
  // run here too, and expect the room of a thread.
  alignas(4096) unsigned char stack[256 * 1024] = {};
};

// What the thread has installed now; ours is put (back) in place where that is none.
void take_up_signal_stack(SignalStack& own) noexcept;
// What the program has just set.
void adopt_signal_stack(SignalStack& own, const stack_t& set) noexcept;
// Nothing of it is watched or in use any more. False: it is, for good.
bool leave_signal_stack(SignalStack& own) noexcept;

inline bool is_own_stack(const SignalStack& own, const void* stack) noexcept {
  return own.has_own && stack == own.stack;
}

// Runs call(argument) on ours, which is in no use: all signals are blocked, and `set` is the one in place.
void call_on_own_stack(SignalStack& own, void (*call)(void*), void* argument) noexcept;

}  // namespace whyrss::shim
