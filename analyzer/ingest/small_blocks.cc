#include "ingest/small_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace whyrss {
namespace {

// No sensible distance of samples is longer; weights stay such that sums of them fit.
constexpr std::uint64_t kMostSampleBytes = 1ULL << 30;

}  // namespace

void SmallBlocks::begin(std::uint64_t sample_bytes) {
  live_ = {};
  last_released_.clear();
  sample_bytes_ = sample_bytes <= kMostSampleBytes ? sample_bytes : 0;
}

void SmallBlocks::begin_as(LiveSet parents, std::uint64_t sample_bytes) {
  begin(sample_bytes);
  live_ = std::move(parents);
}

bool SmallBlocks::allocate(const trace::BlockRecord& block, StackId stack) {
  if (block.size_bytes > std::numeric_limits<std::uint32_t>::max()) return false;
  float weight = 1;
  if (block.sampled_bytes > 0 && sample_bytes_ > 0) {
    const double chance = -std::expm1(-static_cast<double>(block.sampled_bytes) / static_cast<double>(sample_bytes_));
    weight = static_cast<float>(1 / chance);
  }
  const LiveBlock live{.address = block.address,
                       .size_bytes = static_cast<std::uint32_t>(block.size_bytes),
                       .weight = weight,
                       .stack = stack};
  return live_.allocate(live) != LiveSet::Outcome::refused;
}

bool SmallBlocks::release(std::uint64_t address, std::uint32_t tid) {
  LiveBlock released;
  const bool is_small = live_.release(address, released);
  if (is_small)
    last_released_[tid] = released;
  else
    last_released_.erase(tid);  // what is undone next is not an older one
  return is_small;
}

bool SmallBlocks::undo_release(std::uint64_t address, std::uint32_t tid) {
  const auto found = last_released_.find(tid);
  if (found == last_released_.end() || found->second.address != address) return false;
  live_.allocate(found->second);
  last_released_.erase(found);
  return true;
}

void SmallBlocks::forget(std::uint64_t start, std::uint64_t size_bytes) {
  live_.forget(start, start + std::min(size_bytes, std::numeric_limits<std::uint64_t>::max() - start));
}

}  // namespace whyrss
