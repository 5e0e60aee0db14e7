// The slot of the pool that a thread's process has.
#pragma once

#include "shim/events/thread_state.h"
#include "shim/trace/pool.h"

namespace whyrss::shim {

// Of the thread's process; nullptr: it has none.
inline trace::ProcessSlot* slot_of(const ThreadState& thread) noexcept {
  const trace::Writer& writer = thread.writer;
  return writer.slot == trace::kNoSlot ? nullptr : &writer.pool.slots[writer.slot];
}

}  // namespace whyrss::shim
