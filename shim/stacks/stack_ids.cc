#include "shim/stacks/stack_ids.h"

#include "shim/events/own_memory_events.h"
#include "shim/sys/own_memory.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

StackIds::Found StackIds::find(std::uint64_t hash) const noexcept {
  for (std::size_t level = 0; level < kLevels; ++level) {
    Slot* slots = levels_[level].load(std::memory_order_acquire);
    if (slots == nullptr) break;
    const std::size_t first = hash >> (64 - bits_of(level));
    for (std::size_t probe = 0; probe < kProbes; ++probe) {
      Slot& slot = slots[(first + probe) % slots_of(level)];
      const std::uint64_t found = slot.hash.load(std::memory_order_acquire);
      if (found != hash && found != 0) continue;
      const std::uint64_t id = slot.id.load(std::memory_order_acquire);
      const bool is_known = found == hash && id >> 32 == (hash & UINT32_MAX);
      return {.id = is_known ? static_cast<std::uint32_t>(id) : trace::kNoStack, .room = &slot};
    }
  }
  return {.id = trace::kNoStack, .room = nullptr};
}

bool StackIds::grow(ThreadState& thread) noexcept {
  std::size_t level = 0;
  while (level < kLevels && levels_[level].load(std::memory_order_acquire) != nullptr) ++level;
  if (level == kLevels || is_memory_short_.load(std::memory_order_relaxed)) return false;
  const std::size_t size_bytes = slots_of(level) * sizeof(Slot);
  void* memory = map_own(size_bytes);
  if (memory == nullptr) {
    is_memory_short_.store(true, std::memory_order_relaxed);  // asking again at each stack would cost too much
    return false;
  }
  Slot* expected = nullptr;
  if (!levels_[level].compare_exchange_strong(expected, static_cast<Slot*>(memory), std::memory_order_acq_rel)) {
    unmap_own(memory, size_bytes);  // another thread was faster
    return true;
  }
  report_own_memory(thread, memory, size_bytes);
  return true;
}

void StackIds::store(std::uint64_t hash, std::uint32_t id, Slot* room) noexcept {
  std::uint64_t expected = 0;
  if (room == nullptr) return;
  if (room->hash.compare_exchange_strong(expected, hash, std::memory_order_acq_rel) || expected == hash)
    room->id.store(hash << 32 | id, std::memory_order_release);
}

void StackIds::empty() noexcept {
  for (std::size_t level = 0; level < kLevels; ++level)
    if (Slot* slots = levels_[level].load(std::memory_order_acquire); slots != nullptr)
      empty_own(slots, slots_of(level) * sizeof(Slot));
}

}  // namespace whyrss::shim
