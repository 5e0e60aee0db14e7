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
  for (auto left = ranges_.take(); !left.empty();) {
    auto interval = left.extract(left.begin());
    const std::uint64_t all_end = interval.mapped().end;
    std::uint64_t there_from = interval.key();
    for (std::uint64_t at = there_from; at < all_end;) {
      const bool there = walked.at(at) != nullptr;
      const std::uint64_t end = std::min(all_end, walked.boundary(at));
      if (!there) {
        kept.assign(there_from, at, interval.mapped().value);
        there_from = end;
      }
      at = end;
    }
    if (there_from == interval.key())
      kept.append(std::move(interval));
    else
      kept.assign(there_from, all_end, interval.mapped().value);
  }
  ranges_ = std::move(kept);
}

void Inheritance::settle(std::uint64_t start, std::uint64_t end, ForkClass fork_class) {
  for (const ForkRange& range : within(start, end))
    if (range.fork_class != ForkClass::copied) ranges_.assign(range.start, range.end, fork_class);
}

}  // namespace whyrss
