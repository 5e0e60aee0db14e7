// Native stacks that a thread took before, found again by the words that a walk would read.
//
// A walk from given registers is a function of the words that it reads (see unwind_memo.h). Those of a stack lie in
// the same places as long as the frames have the same sizes: its shape. From a caller's address and stack pointer the
// shape of the last stack there is known, and the sum of the words in its places tells which stack it is, if it is one
// that had this shape before: equal words in all of these places lead a walk through the same frames. The loads and
// products of the sum do not wait for each other: some 1 ns a frame, however many of them are new, where a walk takes
// 20 for each that is. Two of 4,000 stacks share their 64-bit sum once in 2e12 threads.
//
// Where Python frames may be on the stack it is its native part that is recalled (python_trail.h has the other). Never
// of an interrupted caller, or of a stack that may go before its thread does. No locks, no allocation;
// async-signal-safe; of one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/stacks/unwind_memo.h"
#include "shim/sys/hash.h"

namespace whyrss::shim {

// Odd and arbitrary: SplitMix64, Steele et al. 2014.
constexpr std::uint64_t recall_factor(std::uint64_t number) noexcept {
  std::uint64_t value = number * kHashSpread;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return (value ^ (value >> 31)) | 1;
}

// What a stack begins with.
struct RecallKey {
  std::uint64_t ip, sp, bp;
  std::uint64_t changes;  // g_stack_changes
};

// Zero at first, 216 KiB, touched as used.
class StackRecall {
 public:
  // Deeper stacks are always walked.
  static constexpr std::size_t kPlaces = 54;

  // 0: none of them.
  [[nodiscard]] std::uint64_t find(const RecallKey& key) noexcept {
    if (pause_ != 0) {
      --pause_;
      return 0;
    }
    const Shape& shape = shape_of(key);
    if (!is_for(shape, key)) return 0;
    const std::uint64_t sum = sum_of(shape, key);
    const Bucket& bucket = bucket_of(sum);
    for (std::size_t way = 0; way < kWays; ++way) {
      if (bucket.sums[way] != sum) continue;
      misses_ -= misses_ != 0 ? 1 : 0;
      return bucket.values[way];
    }
    count_miss();
    return 0;
  }

  // Ids of whole stacks by their sum, native and Python part, as far as a small table has them: the one that all
  // threads share (stack_ids.h) is too large for the processor's caches. kNoStack: not known, or of another epoch.
  [[nodiscard]] std::uint32_t id_of(std::uint64_t hash, std::uint32_t epoch) const noexcept {
    const KnownId& known = ids_[hash % kIds];
    return known.hash == hash && known.epoch == epoch ? known.id : trace::kNoStack;
  }
  void learn_id(std::uint64_t hash, std::uint32_t epoch, std::uint32_t id) noexcept {
    KnownId& known = ids_[hash % kIds];
    known.hash = 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    known.epoch = epoch;
    known.id = id;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    known.hash = hash;
  }

  // `memo` holds the stack of `key`, and can verify it; `value` is what find() returns for it, not 0.
  void learn(const RecallKey& key, const StackMemo& memo, std::uint64_t value) noexcept;

 private:
  static constexpr std::size_t kShapes = 512;
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kBuckets = 1024;

  // Where looking for stacks is in vain it ends for a while: their shapes change, or they are too many.
  static constexpr std::uint32_t kMostMisses = 2048;  // more than hits
  static constexpr std::uint32_t kPauseStacks = 16384;

  struct Shape {
    std::uint64_t ip, sp, changes;  // ip 0: none
    std::uint64_t bp_mask;          // which bits of RBP the walk depends on: all or none
    std::uint64_t count;
    std::array<std::uint32_t, kPlaces> offsets;  // of the words, from sp
    std::uint64_t tag;                           // of all of it
  };
  struct Bucket {
    std::array<std::uint64_t, kWays> sums;
    std::array<std::uint64_t, kWays> values;
  };

  struct KnownId {
    std::uint64_t hash;  // 0: none
    std::uint32_t epoch, id;
  };
  static constexpr std::size_t kIds = 1024;

  static bool is_for(const Shape& shape, const RecallKey& key) noexcept {
    return ((shape.ip ^ key.ip) | (shape.sp ^ key.sp) | (shape.changes ^ key.changes)) == 0;
  }
  [[gnu::always_inline]] static std::uint64_t sum_of(const Shape& shape, const RecallKey& key) noexcept {
    std::uint64_t sum = shape.tag + (key.bp & shape.bp_mask) * recall_factor(0x100);
    const std::uint64_t count = shape.count;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < count; ++i)
      sum += *reinterpret_cast<const std::uint64_t*>(key.sp + shape.offsets[i]) * kFactors[i];
    return sum;
  }

  Shape& shape_of(const RecallKey& key) noexcept { return shapes_[((key.ip ^ key.sp << 20) * kHashSpread) >> 55]; }
  static_assert(kShapes == 1 << 9);
  Bucket& bucket_of(std::uint64_t sum) noexcept { return buckets_[(sum * kHashSpread) >> 54]; }
  static_assert(kBuckets == 1 << 10);

  void count_miss() noexcept {
    if (++misses_ < kMostMisses) return;
    misses_ = 0;
    pause_ = kPauseStacks;
  }
  void reshape(Shape& shape, const RecallKey& key, const StackMemo& memo) noexcept;

  static constexpr auto kFactors = [] {
    std::array<std::uint64_t, kPlaces> factors{};
    for (std::size_t i = 0; i < kPlaces; ++i) factors[i] = recall_factor(i + 1);
    return factors;
  }();

  std::uint32_t pause_ = 0;   // so many stacks are not looked for
  std::uint32_t misses_ = 0;  // less the hits
  std::array<Shape, kShapes> shapes_{};
  std::array<Bucket, kBuckets> buckets_{};
  std::array<KnownId, kIds> ids_{};
};

// nullptr: memory is short.
StackRecall* map_stack_recall() noexcept;

}  // namespace whyrss::shim
