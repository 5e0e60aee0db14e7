// Live blocks by address: buckets of four, each a line of the cache, so that an event of exact mode costs one miss of
// it, and finding the place of a block no branch. A block that finds its bucket full goes to the next one that is not;
// each bucket counts those that went past it. At most half full. Copies are deep.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "attribute/live_block.h"

namespace whyrss {

class BlockTable {
 private:
  static constexpr unsigned kAlignBits = 3, kSizeBits = 19;
  static constexpr std::uint32_t kSizeLimit = 1U << kSizeBits;
  static constexpr std::size_t kLargeBuckets = 1U << 10;  // 64 KiB
  static constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;
  static constexpr std::size_t kLanes = 4;
  static constexpr unsigned kAllLanes = (1U << kLanes) - 1;
  static constexpr std::uint32_t kTaken = 1U << 31, kOne = kTaken | std::bit_cast<std::uint32_t>(1.0F);
  using Words = std::array<std::uint32_t, kLanes>;

  // An address in units of 8 is a key.
  struct alignas(64) Bucket {
    Words low{};            // of the key
    Words high_and_size{};  // the rest of it, above the size
    Words stack{};
    Words weight{};  // a float's bits; its sign says that the lane is taken

    [[nodiscard]] bool is_taken(std::size_t lane) const { return (weight[lane] & kTaken) != 0; }
    [[nodiscard]] std::uint64_t key(std::size_t lane) const {
      return std::uint64_t{high_and_size[lane] >> kSizeBits} << 32 | low[lane];
    }
    [[nodiscard]] LiveBlock block(std::size_t lane) const {
      return {.address = key(lane) << kAlignBits,
              .size_bytes = high_and_size[lane] & (kSizeLimit - 1),
              .weight = std::bit_cast<float>(weight[lane] & ~kTaken),
              .stack = StackId{stack[lane]}};
    }
  };

 public:
  static constexpr std::uint64_t kAddressMask = ((std::uint64_t{1} << 48) - 1) & ~std::uint64_t{7};
  // Size, and stack above it.
  using PackedBlock = std::uint64_t;

  // Multiples of 8 below 2^48, of less than 512 KiB.
  [[nodiscard]] static constexpr bool may_hold(std::uint64_t address, std::uint32_t size_bytes) {
    return address != 0 && (address & ~kAddressMask) == 0 && size_bytes < kSizeLimit;
  }

  // Of a block that the table may hold. Returns the one that was there.
  std::optional<LiveBlock> put(const LiveBlock& block);
  std::optional<LiveBlock> take(std::uint64_t address);
  [[nodiscard]] std::optional<LiveBlock> find(std::uint64_t address) const;

  // The usual events of exact mode, without a branch on what they are: a block of weight 1 is put where none was, or
  // taken from its own bucket. There is room for all that come, and nothing else may use the table meanwhile.
  class Hand {
   public:
    explicit Hand(BlockTable& table)
        : table_(&table), buckets_(table.buckets_.data()), passed_(table.passed_.data()), shift_(table.shift_) {}

    // Of the events that were played.
    void add_blocks(std::size_t allocations, std::size_t releases) { table_->blocks_ += allocations - releases; }

    // `released`: 1: a release, 0: an allocation. False: it is not like that, and nothing has happened. `was`: what was
    // released.
    [[nodiscard, gnu::always_inline]] bool play(std::uint32_t released, std::uint64_t address, std::uint32_t size_bytes,
                                                StackId stack, PackedBlock& was);

   private:
    BlockTable* table_;
    Bucket* buckets_;
    const std::uint32_t* passed_;
    unsigned shift_;
  };

  void make_room(std::size_t blocks) {
    while (most_blocks_ - blocks_ < blocks) grow();
  }

  // Whether prefetch() is worth its while.
  [[nodiscard]] bool is_large() const { return buckets_.size() >= kLargeBuckets; }
  // Starts to bring into the cache what an event of this address will need; not of an empty table.
  [[gnu::always_inline]] void prefetch(std::uint64_t address) const {
    __builtin_prefetch(&buckets_[home_of(address >> kAlignBits)], 1);
  }

  [[nodiscard]] std::size_t size() const { return blocks_; }

  // In any order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t at = 0; at < buckets_.size(); ++at)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        if (buckets_[at].is_taken(lane)) visit(buckets_[at].block(lane));
  }

 private:
  struct Place {
    std::size_t bucket, lane;
  };

  // A bit for each lane.
  [[nodiscard, gnu::always_inline]] static unsigned taken_lanes(const Bucket& bucket);
  [[gnu::always_inline]] static void set_lane(Words& words, std::size_t lane, std::uint32_t value);
  [[nodiscard, gnu::always_inline]] static unsigned lanes_with(const Bucket& bucket, std::uint32_t low);

  [[nodiscard]] std::size_t home_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * kSpread) >> shift_);
  }
  [[nodiscard]] std::optional<Place> place_of(std::uint64_t key) const;
  void insert(const LiveBlock& block);
  void grow();

  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> passed_;  // of each bucket: blocks that it had no room for
  std::size_t mask_ = 0, blocks_ = 0, most_blocks_ = 0;
  unsigned shift_ = 63;
};

#if defined(__SSE2__)
inline unsigned BlockTable::taken_lanes(const Bucket& bucket) {
  return static_cast<unsigned>(_mm_movemask_ps(_mm_load_ps(reinterpret_cast<const float*>(bucket.weight.data()))));
}
inline unsigned BlockTable::lanes_with(const Bucket& bucket, std::uint32_t low) {
  const __m128i same = _mm_cmpeq_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bucket.low.data())),
                                       _mm_set1_epi32(static_cast<int>(low)));
  return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(same)));
}
// All four are stored: a load of all would have to wait for a store of one, and a store whose place depends on what is
// found holds up the loads behind it.
inline void BlockTable::set_lane(Words& words, std::size_t lane, std::uint32_t value) {
  alignas(16) static constexpr std::array<Words, kLanes> kOnly{Words{~0U, 0, 0, 0}, Words{0, ~0U, 0, 0},
                                                               Words{0, 0, ~0U, 0}, Words{0, 0, 0, ~0U}};
  const __m128i only = _mm_load_si128(reinterpret_cast<const __m128i*>(kOnly[lane].data()));
  auto* all = reinterpret_cast<__m128i*>(words.data());
  _mm_store_si128(all, _mm_or_si128(_mm_andnot_si128(only, _mm_load_si128(all)),
                                    _mm_and_si128(only, _mm_set1_epi32(static_cast<int>(value)))));
}
#else
inline void BlockTable::set_lane(Words& words, std::size_t lane, std::uint32_t value) { words[lane] = value; }
inline unsigned BlockTable::taken_lanes(const Bucket& bucket) {
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) lanes |= bucket.weight[lane] >> 31 << lane;
  return lanes;
}
inline unsigned BlockTable::lanes_with(const Bucket& bucket, std::uint32_t low) {
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) lanes |= (bucket.low[lane] == low ? 1U : 0U) << lane;
  return lanes;
}
#endif

inline bool BlockTable::Hand::play(std::uint32_t released, std::uint64_t address, std::uint32_t size_bytes,
                                   StackId stack, PackedBlock& was) {
  const std::uint32_t release_bits = 0 - released;
  const std::uint64_t key = address >> kAlignBits;
  const auto at = static_cast<std::size_t>((key * kSpread) >> shift_);
  Bucket& bucket = buckets_[at];
  const auto low = static_cast<std::uint32_t>(key);
  const std::uint32_t high = static_cast<std::uint32_t>(key >> 32) << kSizeBits;
  const unsigned taken = taken_lanes(bucket);
  const unsigned same = lanes_with(bucket, low) & taken;
  // One that comes needs a free lane, and must not be elsewhere; one that goes has only to be here.
  const unsigned lanes = (same & release_bits) | (~(taken | release_bits) & kAllLanes);
  const auto lane = static_cast<std::size_t>(std::countr_zero(lanes | (kAllLanes + 1) / 2));
  const std::uint32_t held = bucket.high_and_size[lane];
  const std::uint32_t wrong = (((held ^ high) >> kSizeBits | (bucket.weight[lane] ^ kOne)) & release_bits) |
                              ((same | passed_[at] | size_bytes >> kSizeBits) & ~release_bits);
  // 0 wraps around.
  if ((((address - 8) & ~kAddressMask) | wrong) != 0 || lanes == 0) [[unlikely]]
    return false;
  was = std::uint64_t{bucket.stack[lane]} << 32 | (held & (kSizeLimit - 1));
  set_lane(bucket.low, lane, low);
  set_lane(bucket.high_and_size, lane, high | (size_bytes & ~release_bits));
  set_lane(bucket.stack, lane, static_cast<std::uint32_t>(stack));
  set_lane(bucket.weight, lane, kOne & ~release_bits);
  return true;
}

}  // namespace whyrss
