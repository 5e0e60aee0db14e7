#include "shim/live_blocks.h"

namespace whyrss::shim {

constinit LiveBlocks g_live_blocks;

template <class Visit>
bool LiveBlocks::any_slot(std::uint64_t address, Visit visit) const noexcept {
  if (table_ == nullptr) return false;
  const std::uint64_t first = address * 0xff51afd7ed558ccdULL;
  const std::uint64_t second = (address ^ address >> 17) * 0xc4ceb9fe1a85ec53ULL;
  std::atomic<std::uint64_t>* level = table_;
  for (const std::uint32_t bits : kBucketBits) {
    for (const std::uint64_t mixed : {first, second}) {
      std::atomic<std::uint64_t>* bucket = level + (mixed >> (64 - bits)) * kSlotsPerBucket;
      for (std::size_t slot = 0; slot < kSlotsPerBucket; ++slot)
        if (visit(bucket[slot])) return true;
    }
    level += (std::size_t{1} << bits) * kSlotsPerBucket;
  }
  return false;
}

bool LiveBlocks::insert(const void* block) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  // An address that is still here was released behind our back; it must not be stored twice.
  if (may_contain(block) && contains(block)) return true;
  const bool stored = any_slot(address, [address](std::atomic<std::uint64_t>& slot) {
    std::uint64_t empty = 0;
    return slot.load(std::memory_order_relaxed) == 0 &&
           slot.compare_exchange_strong(empty, address, std::memory_order_relaxed);
  });
  if (!stored) return false;
  std::atomic<std::uint8_t>& counter = filter_[filter_index(block)];
  std::uint8_t count = counter.load(std::memory_order_relaxed);
  while (count != kSaturated &&
         !counter.compare_exchange_weak(count, static_cast<std::uint8_t>(count + 1), std::memory_order_relaxed)) {
  }
  return true;
}

bool LiveBlocks::contains(const void* block) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  return any_slot(address, [address](const std::atomic<std::uint64_t>& slot) {
    return slot.load(std::memory_order_relaxed) == address;
  });
}

bool LiveBlocks::remove(const void* block) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const bool removed = any_slot(address, [address](std::atomic<std::uint64_t>& slot) {
    if (slot.load(std::memory_order_relaxed) != address) return false;
    slot.store(0, std::memory_order_relaxed);
    return true;
  });
  if (!removed) return false;
  std::atomic<std::uint8_t>& counter = filter_[filter_index(block)];
  std::uint8_t count = counter.load(std::memory_order_relaxed);
  while (count != kSaturated && count != 0 &&
         !counter.compare_exchange_weak(count, static_cast<std::uint8_t>(count - 1), std::memory_order_relaxed)) {
  }
  return true;
}

}  // namespace whyrss::shim
