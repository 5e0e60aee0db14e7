#include "attribute/inheritance.h"

#include <algorithm>

#include "attribute/range_cursor.h"

namespace whyrss {

std::vector<ForkRange> Inheritance::ranges() const {
  std::vector<ForkRange> ranges;
  ranges.reserve(ranges_.intervals().size());
  for (const auto& [start, interval] : ranges_.intervals()) ranges.push_back({start, interval.end, interval.value});
  return ranges;
}

std::vector<ForkRange> Inheritance::within(std::uint64_t start, std::uint64_t end) const {
  std::vector<ForkRange> ranges;
  ranges_.visit_within(start, end, [&](std::uint64_t from, std::uint64_t to, ForkClass fork_class) {
    ranges.push_back({from, to, fork_class});
  });
  return ranges;
}

void Inheritance::keep(const std::vector<AnonymousRun>& runs) {
  IntervalMap<ForkClass> kept;
  RangeCursor walked(runs);
  for (const auto& [start, interval] : ranges_.intervals()) {
    for (std::uint64_t at = start; at < interval.end;) {
      const bool there = walked.at(at) != nullptr;
      const std::uint64_t end = std::min(interval.end, walked.boundary(at));
      if (there) kept.assign(at, end, interval.value);
      at = end;
    }
  }
  ranges_ = std::move(kept);
}

void Inheritance::settle(std::uint64_t start, std::uint64_t end, ForkClass fork_class) {
  for (const ForkRange& range : within(start, end))
    if (range.fork_class != ForkClass::copied) ranges_.assign(range.start, range.end, fork_class);
}

}  // namespace whyrss
