#include "decode/tick_clock.h"

#include <algorithm>
#include <limits>

namespace whyrss {
namespace {

// Closer readings say less about the rate than about who was interrupted between the two clocks.
constexpr std::uint64_t kLeastGapNs = 1'000'000;

void keep_rising(std::vector<ClockPoint>& points) {
  std::ranges::sort(points, {}, &ClockPoint::time_ns);
  std::vector<ClockPoint> kept;
  for (const ClockPoint& point : points) {
    const bool rises =
        kept.empty() || (point.time_ns - kept.back().time_ns >= kLeastGapNs && point.ticks > kept.back().ticks);
    if (rises) kept.push_back(point);
  }
  points = std::move(kept);
}

}  // namespace

void TickClock::add(const BlockRuns& runs) {
  const auto& collectors = runs.collector_clocks();
  points_.insert(points_.end(), collectors.begin(), collectors.end());
  // Two are enough where there are no better ones; the others are as many as leases.
  const auto& writers = runs.writer_clocks();
  if (writers.empty()) return;
  const auto [first, last] = std::ranges::minmax_element(writers, {}, &ClockPoint::time_ns);
  writers_.push_back(*first);
  writers_.push_back(*last);
}

void TickClock::settle() {
  keep_rising(points_);
  if (points_.size() < 2) points_.insert(points_.end(), writers_.begin(), writers_.end());
  keep_rising(points_);
  writers_.clear();
}

std::uint64_t TickClock::ticks_at(std::uint64_t time_ns) const {
  constexpr std::uint64_t kEnd = std::numeric_limits<std::uint64_t>::max();
  if (points_.empty()) return kEnd;
  // With one reading the rate is not known: all that was stamped after it counts as written there and then.
  if (points_.size() == 1)
    return time_ns >= points_[0].time_ns ? kEnd : points_[0].ticks - std::min<std::uint64_t>(points_[0].ticks, 1);
  const auto after = std::clamp(std::ranges::upper_bound(points_, time_ns, {}, &ClockPoint::time_ns),
                                points_.begin() + 1, points_.end() - 1);
  const ClockPoint from = *std::prev(after);
  const double rate =
      static_cast<double>(after->ticks - from.ticks) / static_cast<double>(after->time_ns - from.time_ns);
  const std::uint64_t apart_ns = time_ns >= from.time_ns ? time_ns - from.time_ns : from.time_ns - time_ns;
  const auto distance = static_cast<std::uint64_t>(std::min(static_cast<double>(apart_ns) * rate, 0x1p62));
  if (time_ns < from.time_ns) return from.ticks - std::min(distance, from.ticks);
  return from.ticks + std::min(distance, kEnd - from.ticks);
}

}  // namespace whyrss
