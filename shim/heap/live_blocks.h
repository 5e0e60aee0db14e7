// The blocks that were logged and are not released yet, so that free can tell in one bit test that a
// block was not (the common case), and exactly when it may have been.
//   filter  2^18 bits, by address modulo 4 MiB, and a counter of one byte for each; one that saturated (255) stays so.
//           With 16,000 blocks, the samples of 1 GiB, one address of 17 is looked up in vain.
//   set     three tables of 8-slot buckets, two candidate buckets per address each: 32 KiB, 512 KiB,
//           8 MiB, used in this order, so that a program with few large blocks touches few pages.
// Lock-free, async-signal-safe; fork copies it. An address belongs to one thread between its malloc
// and its free, so two calls never race on the same address.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace whyrss::shim {

class LiveBlocks {
 public:
  static constexpr std::size_t kSlotsPerBucket = 8;
  static constexpr std::array<std::uint32_t, 3> kBucketBits{9, 13, 17};
  static constexpr std::size_t kTableBytes =
      ((std::size_t{1} << kBucketBits[0]) + (std::size_t{1} << kBucketBits[1]) + (std::size_t{1} << kBucketBits[2])) *
      kSlotsPerBucket * sizeof(std::uint64_t);

  // Gives the set its memory: kTableBytes, zero-filled. Without it insert() always fails.
  void use_table(void* memory) noexcept { table_ = static_cast<std::atomic<std::uint64_t>*>(memory); }

  // False: certainly not logged.
  [[nodiscard]] bool may_contain(const void* block) const noexcept {
    const std::size_t index = filter_index(block);
    return (filter_[index / 64].load(std::memory_order_relaxed) >> index % 64 & 1) != 0;
  }

  // False when there was no room: the block then counts as never logged. Remembers `note` with it.
  bool insert(const void* block, std::uint16_t note = 0) noexcept;
  [[nodiscard]] bool contains(const void* block) const noexcept;
  // True when the block was in the set; then `*note` is as it was inserted.
  bool remove(const void* block, std::uint16_t* note = nullptr) noexcept;

  // Makes may_contain() true for this address until as many calls of the other: its release is of interest, logged or
  // not.
  void watch(const void* block) noexcept { add_to_filter(block); }
  void unwatch(const void* block) noexcept { remove_from_filter(block); }

 private:
  // A slot: the address below, the note above.
  static constexpr unsigned kAddressBits = 48;
  static constexpr std::uint64_t kAddress = (std::uint64_t{1} << kAddressBits) - 1;
  static constexpr std::uint8_t kSaturated = 255;
  static constexpr unsigned kFilterBits = 18;
  // No hash: neighbours share a cache line, so that a program which frees them keeps its own data in the cache.
  static std::size_t filter_index(const void* block) noexcept {
    return reinterpret_cast<std::uintptr_t>(block) / 16 % (1U << kFilterBits);
  }
  void set_filter(std::size_t index) noexcept;
  void add_to_filter(const void* block) noexcept;
  void remove_from_filter(const void* block) noexcept;
  // Calls visit(slot) for the candidate slots in order until it returns true; says of which table. The tables
  // that never held anything are not visited, but by an insert.
  template <class Visit>
  bool any_slot(std::uint64_t address, std::uint32_t tables, Visit visit) const noexcept;

  std::array<std::atomic<std::uint64_t>, (std::size_t{1} << kFilterBits) / 64> filter_{};
  std::array<std::atomic<std::uint8_t>, std::size_t{1} << kFilterBits> counters_{};
  std::atomic<std::uint32_t> tables_used_{0};
  std::atomic<std::uint64_t>* table_ = nullptr;
};

// The one of this process.
extern constinit LiveBlocks g_live_blocks;
inline LiveBlocks& live_blocks() noexcept { return g_live_blocks; }

}  // namespace whyrss::shim
