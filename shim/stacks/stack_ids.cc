#include "shim/stacks/stack_ids.h"

#include "shim/events/own_memory_events.h"
#include "shim/sys/own_memory.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// `room` of what is found is nullptr where other stacks have all the slots that are tried.
StackIds::Found StackIds::find_in(Slot* slots, unsigned bits, std::uint64_t hash) noexcept {
  const std::size_t first = hash >> (64 - bits);
  const std::size_t mask = (std::size_t{1} << bits) - 1;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    Slot& slot = slots[(first + probe) & mask];
    const std::uint64_t found = slot.hash.load(std::memory_order_acquire);
    if (found != hash && found != 0) continue;
    const std::uint64_t id = slot.id.load(std::memory_order_acquire);
    const bool is_known = found == hash && id >> 32 == (hash & UINT32_MAX);
    return {.id = is_known ? static_cast<std::uint32_t>(id) : trace::kNoStack, .room = &slot};
  }
  return {.id = trace::kNoStack, .room = nullptr};
}

StackIds::Found StackIds::find(std::uint64_t hash) const noexcept {
  for (std::size_t level = 0; level < kLevels; ++level) {
    Slot* slots = levels_[level].load(std::memory_order_acquire);
    if (slots == nullptr) break;
    const unsigned bits = level == 0 ? bits_of_first_.load(std::memory_order_acquire) : bits_of(level);
    if (const Found found = find_in(slots, bits, hash); found.room != nullptr) return found;
  }
  return {.id = trace::kNoStack, .room = nullptr};
}

bool StackIds::grow(ThreadState& thread) noexcept {
  if (levels_[0].load(std::memory_order_acquire) != nullptr &&
      bits_of_first_.load(std::memory_order_acquire) == kFirstBits) {
    use_whole_level();
    return true;
  }
  std::size_t level = 0;
  while (level < kLevels && levels_[level].load(std::memory_order_acquire) != nullptr) ++level;
  if (level == kLevels || is_memory_short_.load(std::memory_order_relaxed)) return false;
  const std::size_t size_bytes = slots_of(level) * sizeof(Slot);
  void* memory = map_own(size_bytes);
  if (memory == nullptr) {
    is_memory_short_.store(true, std::memory_order_relaxed);  // asking again at each stack would cost too much
    return false;
  }
  if (level == 0) static_cast<Slot*>(memory)->id.store(0);  // a first fault by a read would be followed by one more
  Slot* expected = nullptr;
  if (!levels_[level].compare_exchange_strong(expected, static_cast<Slot*>(memory), std::memory_order_acq_rel)) {
    unmap_own(memory, size_bytes);  // another thread was faster
    return true;
  }
  report_own_memory(thread, memory, size_bytes);
  return true;
}

void StackIds::put(std::uint64_t hash, std::uint64_t id, Slot* room) noexcept {
  std::uint64_t expected = 0;
  if (room->hash.compare_exchange_strong(expected, hash, std::memory_order_acq_rel) || expected == hash)
    room->id.store(hash << 32 | id, std::memory_order_release);
}

void StackIds::store(std::uint64_t hash, std::uint32_t id, Slot* room) noexcept {
  if (room == nullptr) return;
  put(hash, id, room);
  if (bits_of_first_.load(std::memory_order_relaxed) == kFirstBits &&
      stored_.fetch_add(1, std::memory_order_relaxed) >= kFirstStacks)
    use_whole_level();
}

// Several threads may do so at once, to the same effect. What another one is just storing is described once more.
void StackIds::use_whole_level() noexcept {
  Slot* slots = levels_[0].load(std::memory_order_acquire);
  if (slots == nullptr) return;
  for (std::size_t i = 0; i < std::size_t{1} << kFirstBits; ++i) {
    const std::uint64_t hash = slots[i].hash.load(std::memory_order_acquire);
    const std::uint64_t id = slots[i].id.load(std::memory_order_acquire);
    if (hash == 0 || id >> 32 != (hash & UINT32_MAX)) continue;
    if (const Found found = find_in(slots, bits_of(0), hash); found.room != nullptr && found.id == trace::kNoStack)
      put(hash, id & UINT32_MAX, found.room);
  }
  bits_of_first_.store(bits_of(0), std::memory_order_release);
}

void StackIds::empty() noexcept {
  for (std::size_t level = 0; level < kLevels; ++level)
    if (Slot* slots = levels_[level].load(std::memory_order_acquire); slots != nullptr)
      empty_own(slots, slots_of(level) * sizeof(Slot));
}

}  // namespace whyrss::shim
