// Who called the outermost of the heap entries that run now.
#pragma once

#include <cstdint>

#include "shim/events/caller.h"
#include "shim/events/thread_state.h"

namespace whyrss::shim {

// The caller of the entry within which the one called by `caller` runs, or `caller` itself. An operator new that threw
// has left its mark behind: then the inner call is not within the few frames that an allocator's operator new takes,
// or the slot of its return address holds another value.
inline const Caller& outermost(const ThreadState& thread, const Caller& caller, Caller& outer) noexcept {
  constexpr std::uintptr_t kNestedBytes = 4096;
  const bool near = thread.outer_sp > caller.sp && thread.outer_sp - caller.sp < kNestedBytes;
  if (!near || *thread.outer_return_slot != thread.outer_return) return caller;
  outer = {.ip = thread.outer_return,
           .sp = reinterpret_cast<std::uintptr_t>(thread.outer_return_slot + 1),
           .bp = thread.outer_bp};
  return outer;
}

}  // namespace whyrss::shim
