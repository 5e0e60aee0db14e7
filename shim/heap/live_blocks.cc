#include "shim/heap/live_blocks.h"

#include "shim/sys/cheap_atomics.h"

namespace whyrss::shim {

constinit LiveBlocks g_live_blocks;

template <class Visit>
bool LiveBlocks::any_slot(std::uint64_t address, std::uint32_t tables, Visit visit) const noexcept {
  if (table_ == nullptr) return false;
  const std::uint64_t first = address * 0xff51afd7ed558ccdULL;
  const std::uint64_t second = (address ^ address >> 17) * 0xc4ceb9fe1a85ec53ULL;
  std::atomic<std::uint64_t>* table = table_;
  for (std::uint32_t number = 0; number < tables; ++number) {
    const std::uint32_t bits = kBucketBits[number];
    for (const std::uint64_t mixed : {first, second}) {
      std::atomic<std::uint64_t>* bucket = table + (mixed >> (64 - bits)) * kSlotsPerBucket;
      for (std::size_t slot = 0; slot < kSlotsPerBucket; ++slot)
        if (visit(bucket[slot], number)) return true;
    }
    table += (std::size_t{1} << bits) * kSlotsPerBucket;
  }
  return false;
}

bool LiveBlocks::insert(const void* block, std::uint16_t note) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (address > kAddress) return false;  // only where a mapping was asked for above 128 TiB
  const std::uint64_t entry = address | std::uint64_t{note} << kAddressBits;
  // An address that is still here was released behind our back; it must not be stored twice.
  if (may_contain(block) && remove(block)) return insert(block, note);
  std::uint32_t used = 0;
  const bool stored =
      any_slot(address, kBucketBits.size(), [&](std::atomic<std::uint64_t>& slot, std::uint32_t number) {
        std::uint64_t empty = 0;
        used = number + 1;
        return slot.load(std::memory_order_relaxed) == 0 && replace(slot, empty, entry);
      });
  if (!stored) return false;
  std::uint32_t before = tables_used_.load(std::memory_order_relaxed);
  while (before < used && !tables_used_.compare_exchange_weak(before, used, std::memory_order_relaxed)) {
  }
  add_to_filter(block);
  return true;
}

bool LiveBlocks::contains(const void* block) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  return any_slot(address, tables_used_.load(std::memory_order_relaxed),
                  [address](const std::atomic<std::uint64_t>& slot, std::uint32_t) {
                    return (slot.load(std::memory_order_relaxed) & kAddress) == address;
                  });
}

bool LiveBlocks::remove(const void* block, std::uint16_t* note) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const bool removed = any_slot(address, tables_used_.load(std::memory_order_relaxed),
                                [address, note](std::atomic<std::uint64_t>& slot, std::uint32_t) {
                                  const std::uint64_t entry = slot.load(std::memory_order_relaxed);
                                  if ((entry & kAddress) != address) return false;
                                  if (note != nullptr) *note = static_cast<std::uint16_t>(entry >> kAddressBits);
                                  slot.store(0, std::memory_order_relaxed);
                                  return true;
                                });
  if (removed) remove_from_filter(block);
  return removed;
}

void LiveBlocks::set_filter(std::size_t index) noexcept {
  set_bits(filter_[index / 64], std::uint64_t{1} << index % 64);
}

void LiveBlocks::add_to_filter(const void* block) noexcept {
  std::atomic<std::uint8_t>& counter = counters_[filter_index(block)];
  std::uint8_t count = counter.load(std::memory_order_relaxed);
  while (count != kSaturated && !replace(counter, count, static_cast<std::uint8_t>(count + 1))) {
  }
  set_filter(filter_index(block));
}

void LiveBlocks::remove_from_filter(const void* block) noexcept {
  const std::size_t index = filter_index(block);
  std::atomic<std::uint8_t>& counter = counters_[index];
  std::uint8_t count = counter.load(std::memory_order_relaxed);
  while (count != kSaturated && count != 0 && !replace(counter, count, static_cast<std::uint8_t>(count - 1))) {
  }
  if (count != 1) return;
  keep_bits(filter_[index / 64], ~(std::uint64_t{1} << index % 64));
  // Another block may have come in between; it is not yet in the program's hands.
  if (counter.load() != 0) set_filter(index);
}

}  // namespace whyrss::shim
