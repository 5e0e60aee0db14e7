#include "attribute/heap_shares.h"

#include <algorithm>
#include <cmath>

namespace whyrss {

bool HeapShares::has_samples() const {
  return std::any_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.estimate > 0; });
}

double HeapShares::estimated_bytes() const {
  double bytes = 0;
  for (const Sum& sum : sums_) bytes += sum.estimate;
  return bytes;
}

std::vector<HeapShares::Share> HeapShares::share_out(std::int64_t total_bytes, Samples samples) const {
  double known = 0, estimate = 0, variance = 0;
  for (const Sum& sum : sums_) {
    known += sum.known;
    estimate += sum.estimate;
    variance += sum.variance;
  }
  const auto total = static_cast<double>(total_bytes);
  const double left = std::max(0.0, total - known);
  double scale = estimate > 0 ? left / estimate : 0;
  if (samples != Samples::scaled) scale = std::min(scale, 1.0);

  std::vector<Share> shares;
  double place = 0;
  std::int64_t shared_bytes = 0;
  // Rounded where they end, so that they sum to the total.
  const auto add = [&](StackId stack, double bytes, double share_variance) {
    place += bytes;
    const std::int64_t end = std::clamp(static_cast<std::int64_t>(std::llround(place)), shared_bytes, total_bytes);
    if (end > shared_bytes) shares.push_back({stack, end - shared_bytes, share_variance});
    shared_bytes = end;
  };
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Sum& sum = sums_[i];
    if (sum.known + sum.estimate <= 0) continue;
    // A share of a known total errs less than its samples do: were all of one stack, it would not err at all.
    const double part = samples == Samples::scaled && estimate > 0 ? sum.estimate / estimate : 0;
    const double share_variance =
        scale * scale * ((1 - part) * (1 - part) * sum.variance + part * part * (variance - sum.variance));
    add(StackId{static_cast<std::uint32_t>(i)}, sum.known + scale * sum.estimate, std::max(0.0, share_variance));
  }
  if (shared_bytes < total_bytes) {
    if (!shares.empty() && shares.front().stack == kEmptyStack)
      shares.front().bytes += total_bytes - shared_bytes;
    else
      shares.insert(shares.begin(), {kEmptyStack, total_bytes - shared_bytes, 0});
  }
  return shares;
}

}  // namespace whyrss
