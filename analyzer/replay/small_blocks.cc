#include "replay/small_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "decode/block_merge.h"

namespace whyrss {
namespace {

// No sensible distance of samples is longer; weights stay such that sums of them fit.
constexpr std::uint64_t kMostSampleBytes = 1ULL << 30;
constexpr std::uint64_t kMostCoarse = 8;  // beyond what any shim does: damaged

// Between the release of a block by one thread and its next use by another lies a hand-over in the allocator: 600 ticks
// at least were measured. Stamps that are in the wrong order are closer than that.
constexpr std::uint64_t kMostTicksLate = 1000;

constexpr std::size_t kMostEarly = 256;  // more are no accidents

constexpr std::uint32_t kMostCachedStacks = 1U << 24;

// Of a sample that was so many mean distances long.
double weight_of(double distances) {
  const double chance = -std::expm1(-distances);
  return chance > 0 ? 1 / chance : 1;
}

}  // namespace

StackId StackCache::look_up(std::uint32_t id) {
  const StackId stack = image_ == nullptr ? kEmptyStack : threads_->with(image_->resolve_once(id), starter_);
  if (id >= kMostCachedStacks) return stack;  // no shim counts so far
  if (id >= known_.size()) known_.resize(std::max<std::size_t>(id + 1, known_.size() * 2), kUnknown);
  return known_[id] = stack;
}

void SmallBlocks::begin(std::uint64_t sample_bytes) {
  live_ = {};
  last_released_.clear();
  of_last_tid_ = nullptr;
  early_.clear();
  sample_bytes_ = sample_bytes <= kMostSampleBytes ? sample_bytes : 0;
}

void SmallBlocks::begin_as(LiveSet parents, std::uint64_t sample_bytes) {
  begin(sample_bytes);
  live_ = std::move(parents);
}

bool SmallBlocks::allocate(const trace::BlockRecord& block, StackId stack) {
  if (block.size_bytes > std::numeric_limits<std::uint32_t>::max()) return false;
  double weight = 1, usual_weight = 1;
  if (block.sampled_bytes > 0 && sample_bytes_ > 0) {
    constexpr unsigned kShift = trace::BlockRecord::kCoarsenessShift;
    const auto coarseness = static_cast<int>(std::min(block.sampled_bytes >> kShift, kMostCoarse));
    const auto counted = static_cast<double>(block.sampled_bytes & ((std::uint64_t{1} << kShift) - 1));
    const double distances = counted / static_cast<double>(sample_bytes_);
    weight = weight_of(std::ldexp(distances, -coarseness));
    usual_weight = weight_of(distances);
  }
  const LiveBlock live{.address = block.address,
                       .size_bytes = static_cast<std::uint32_t>(block.size_bytes),
                       .weight = static_cast<float>(weight),
                       .stack = stack};
  return live_.allocate(live, usual_weight) != LiveSet::Outcome::refused;
}

bool SmallBlocks::release(std::uint64_t address, std::uint32_t tid) {
  LiveBlock released;
  const bool is_small = live_.release(address, released);
  if (is_small)
    last_released_[tid] = released;
  else
    last_released_[tid].address = 0;  // what is undone next is not an older one
  return is_small;
}

bool SmallBlocks::undo_release(std::uint64_t address, std::uint32_t tid) {
  const auto found = last_released_.find(tid);
  if (found == last_released_.end() || found->second.address != address || address == 0) return false;
  live_.allocate(found->second);
  found->second.address = 0;
  return true;
}

bool SmallBlocks::is_late_release(const BlockEvent& event, std::uint32_t tid) {
  std::erase_if(early_, [&](const Early& early) { return event.ticks - early.ticks > kMostTicksLate; });
  const auto found = std::ranges::find_if(
      early_, [&](const Early& early) { return early.address == event.address && early.tid != tid; });
  if (found == early_.end()) return false;
  early_.erase(found);
  return true;
}

void SmallBlocks::apply(std::span<const BlockEvent> events, std::uint32_t tid, StackCache& stacks,
                        AddressSpace& large) {
  if (tid != last_tid_ || of_last_tid_ == nullptr) {
    of_last_tid_ = &last_released_[tid];
    last_tid_ = tid;
  }
  const auto stack_of = [&](std::uint32_t id, StackId& stack) { return stacks.find(id, stack); };
  while (!events.empty()) {
    if (early_.empty()) {
      events = events.subspan(live_.play(events, BlockMerge::kLookahead, stack_of, *of_last_tid_));
      if (events.empty()) return;
    }
    apply_one(events.front(), tid, stacks, large);
    events = events.subspan(1);
  }
}

void SmallBlocks::apply_one(const BlockEvent& event, std::uint32_t tid, StackCache& stacks, AddressSpace& large) {
  if (!event.is_release()) {
    stacks[trace::kNoStack];  // of releases
    const auto outcome = live_.allocate(
        {.address = event.address, .size_bytes = event.size_bytes, .weight = 1, .stack = stacks[event.stack_id]});
    if (outcome == LiveSet::Outcome::replaced && early_.size() < kMostEarly)
      early_.push_back({event.address, event.ticks, tid});
  } else if (early_.empty() || !is_late_release(event, tid)) {
    LiveBlock& last_released = *of_last_tid_;
    if (live_.release(event.address, last_released)) return;
    last_released.address = 0;
    large.release(event.address, tid);
  }
}

void SmallBlocks::forget(std::uint64_t start, std::uint64_t size_bytes) {
  live_.forget(start, start + std::min(size_bytes, std::numeric_limits<std::uint64_t>::max() - start));
}

}  // namespace whyrss
