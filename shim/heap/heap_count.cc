#include "shim/heap/heap_count.h"

#include "shim/trace/pool.h"

namespace whyrss::shim {

void flush_counts(ThreadState& thread) noexcept {
  settle_countdown(thread);
  arm_countdown(thread);
  if (thread.writer.slot != trace::kNoSlot && thread.writer.pool) {
    trace::ProcessSlot& slot = thread.writer.pool.slots[thread.writer.slot];
    slot.small_allocations.fetch_add(thread.small_allocations, std::memory_order_relaxed);
    slot.small_allocated_bytes.fetch_add(thread.small_allocated_bytes, std::memory_order_relaxed);
    slot.small_releases.fetch_add(thread.small_releases, std::memory_order_relaxed);
    if (heap().directory.load(std::memory_order_relaxed) != nullptr)
      slot.live_bytes.fetch_add(static_cast<std::int64_t>(thread.small_allocated_bytes - thread.small_released_bytes),
                                std::memory_order_relaxed);
  }
  thread.small_allocations = thread.small_allocated_bytes = 0;
  thread.small_releases = thread.small_released_bytes = 0;
}

}  // namespace whyrss::shim
