#include "attribute/block_table.h"

#include <algorithm>
#include <utility>

namespace whyrss {
namespace {

constexpr std::size_t kFewestBuckets = 16;

}  // namespace

std::optional<BlockTable::Place> BlockTable::place_of(std::uint64_t key) const {
  if (buckets_.empty()) return std::nullopt;
  for (std::size_t at = home_of(key);; at = (at + 1) & mask_) {
    const Bucket& bucket = buckets_[at];
    for (unsigned lanes = lanes_with(bucket, static_cast<std::uint32_t>(key)) & taken_lanes(bucket); lanes != 0;
         lanes &= lanes - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(lanes));
      if (bucket.key(lane) == key) return Place{at, lane};
    }
    if (passed_[at] == 0) return std::nullopt;
  }
}

std::optional<LiveBlock> BlockTable::find(std::uint64_t address) const {
  if ((address & ~kAddressMask) != 0) return std::nullopt;
  const auto place = place_of(address >> kAlignBits);
  if (!place) return std::nullopt;
  return buckets_[place->bucket].block(place->lane);
}

// Of an address that is not there, where there is room.
void BlockTable::insert(const LiveBlock& block) {
  const std::uint64_t key = block.address >> kAlignBits;
  std::size_t at = home_of(key);
  while (taken_lanes(buckets_[at]) == kAllLanes) {
    ++passed_[at];
    at = (at + 1) & mask_;
  }
  Bucket& bucket = buckets_[at];
  const auto lane = static_cast<std::size_t>(std::countr_one(taken_lanes(bucket)));
  bucket.low[lane] = static_cast<std::uint32_t>(key);
  bucket.high_and_size[lane] = static_cast<std::uint32_t>(key >> 32) << kSizeBits | block.size_bytes;
  bucket.stack[lane] = static_cast<std::uint32_t>(block.stack);
  bucket.weight[lane] = kTaken | std::bit_cast<std::uint32_t>(block.weight);
  ++blocks_;
}

std::optional<LiveBlock> BlockTable::put(const LiveBlock& block) {
  auto there = take(block.address);
  if (blocks_ >= most_blocks_) grow();
  insert(block);
  return there;
}

std::optional<LiveBlock> BlockTable::take(std::uint64_t address) {
  if ((address & ~kAddressMask) != 0) return std::nullopt;
  const std::uint64_t key = address >> kAlignBits;
  const auto place = place_of(key);
  if (!place) return std::nullopt;
  const LiveBlock block = buckets_[place->bucket].block(place->lane);
  buckets_[place->bucket].weight[place->lane] = 0;
  for (std::size_t at = home_of(key); at != place->bucket; at = (at + 1) & mask_) --passed_[at];
  --blocks_;
  return block;
}

void BlockTable::grow() {
  std::vector<Bucket> old(std::max(kFewestBuckets, buckets_.size() * 2));
  old.swap(buckets_);
  passed_.assign(buckets_.size(), 0);
  mask_ = buckets_.size() - 1;
  shift_ = static_cast<unsigned>(64 - std::countr_zero(buckets_.size()));
  most_blocks_ = buckets_.size() * kLanes / 2;
  blocks_ = 0;
  for (const Bucket& bucket : old)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      if (bucket.is_taken(lane)) insert(bucket.block(lane));
}

}  // namespace whyrss
