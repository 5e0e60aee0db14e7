#include "attribute/small_block_sites.h"

#include <algorithm>
#include <cmath>

namespace whyrss {
namespace {

// Fewer bytes are not worth a pass over all blocks.
constexpr std::int64_t kLeastBytes = 64LL * 1024;

// Pages whose live blocks fill this part of them at least are theirs; the rest is slack and what malloc keeps.
constexpr double kMostlyLive = 0.5;

}  // namespace

std::vector<HeapShares::Share> small_block_sites(const std::vector<Range>& ranges, const LiveSet& blocks) {
  std::int64_t bytes = 0;
  for (const Range& range : ranges) bytes += static_cast<std::int64_t>(range.end - range.start);
  if (bytes < kLeastBytes) return {};
  HeapShares shares;
  blocks.for_each([&](const LiveBlock& block) {
    const auto range = std::ranges::upper_bound(ranges, block.address, {}, &Range::end);
    if (range != ranges.end() && range->start <= block.address)
      shares.add_samples(block.stack, block.size_bytes, static_cast<double>(block.weight));
  });
  if (!shares.has_samples()) return {};
  const double live = shares.estimated_bytes();
  const bool filled = live >= kMostlyLive * static_cast<double>(bytes);
  return shares.share_out(filled ? bytes : std::llround(live), Samples::scaled);
}

}  // namespace whyrss
