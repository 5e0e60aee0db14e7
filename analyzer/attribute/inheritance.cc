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

std::vector<Range> Inheritance::observe(const std::vector<AnonymousRun>& runs, std::uint64_t minor_faults,
                                        std::uint64_t page_bytes) {
  std::vector<Range> copied;
  IntervalMap<ForkClass> seen;
  RangeCursor walked(runs);
  std::uint64_t copies_left = minor_faults;
  for (const auto& [start, interval] : ranges_.intervals()) {
    for (std::uint64_t at = start; at < interval.end;) {
      const AnonymousRun* run = walked.at(at);
      const std::uint64_t end = std::min(interval.end, walked.boundary(at));
      if (run != nullptr && interval.value == ForkClass::shared && run->resident && run->exclusive) {
        const std::uint64_t copies = std::min((end - at) / page_bytes, copies_left);
        const std::uint64_t copied_end = at + copies * page_bytes;
        copies_left -= copies;
        if (copies > 0) copied.push_back({at, copied_end});
        seen.assign(at, copied_end, ForkClass::copied);
        seen.assign(copied_end, end, ForkClass::sole);
      } else if (run != nullptr) {
        seen.assign(at, end, interval.value);
      }
      at = end;
    }
  }
  ranges_ = std::move(seen);
  return copied;
}

}  // namespace whyrss
