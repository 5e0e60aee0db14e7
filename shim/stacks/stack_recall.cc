#include "shim/stacks/stack_recall.h"

#include <atomic>

#include "shim/sys/hash.h"
#include "shim/sys/own_memory.h"

namespace whyrss::shim {

// A signal handler of the program may leave by longjmp at any point: what is half written is not found.
void StackRecall::reshape(Shape& shape, const RecallKey& key, const StackMemo& memo) noexcept {
  shape.ip = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  shape.sp = key.sp;
  shape.changes = key.changes;
  shape.bp_mask = memo.needed_bp() != nullptr ? ~std::uint64_t{0} : 0;
  shape.count = 0;
  std::uint64_t tag = mix(mix(mix(key.ip, key.sp), key.changes), shape.bp_mask);
  memo.each_place([&](std::uint64_t place) {
    const auto offset = static_cast<std::uint32_t>(place - key.sp);
    shape.offsets[shape.count++] = offset;
    tag = mix(tag, offset);
  });
  shape.tag = tag;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  shape.ip = key.ip;
}

void StackRecall::learn(const RecallKey& key, const StackMemo& memo, std::uint64_t value) noexcept {
  if (pause_ != 0 || memo.place_count() > kPlaces) return;
  Shape& shape = shape_of(key);
  const bool was_here = is_for(shape, key);
  bool same = was_here && shape.count == memo.place_count() && (shape.bp_mask != 0) == (memo.needed_bp() != nullptr);
  std::size_t number = 0;
  if (same) memo.each_place([&](std::uint64_t place) { same &= shape.offsets[number++] == place - key.sp; });
  if (!same) reshape(shape, key, memo);
  if (!was_here) count_miss();  // else find() has
  const std::uint64_t sum = sum_of(shape, key);
  Bucket& bucket = bucket_of(sum);
  std::size_t way = 0;
  while (way < kWays && bucket.values[way] != 0 && bucket.sums[way] != sum) ++way;
  way = way < kWays ? way : value % kWays;
  bucket.values[way] = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  bucket.sums[way] = sum;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  bucket.values[way] = value;
}

StackRecall* map_stack_recall() noexcept { return static_cast<StackRecall*>(map_own_of_thread(sizeof(StackRecall))); }

}  // namespace whyrss::shim
