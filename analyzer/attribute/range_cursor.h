// Walks along a sorted list of disjoint ranges while positions only grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace whyrss {

// Of a range of addresses, in bytes.
inline std::int64_t length(std::uint64_t start, std::uint64_t end) { return static_cast<std::int64_t>(end - start); }

template <typename Ranged>
class RangeCursor {
 public:
  explicit RangeCursor(const std::vector<Ranged>& ranges) : ranges_(&ranges) {}

  // The range that holds `position`, nullptr between ranges. Positions must not decrease.
  const Ranged* at(std::uint64_t position) {
    while (next_ < ranges_->size() && (*ranges_)[next_].end <= position) ++next_;
    if (next_ == ranges_->size() || (*ranges_)[next_].start > position) return nullptr;
    return &(*ranges_)[next_];
  }

  // Where the answer of the last at(position) changes.
  [[nodiscard]] std::uint64_t boundary(std::uint64_t position) const {
    if (next_ == ranges_->size()) return std::numeric_limits<std::uint64_t>::max();
    const Ranged& range = (*ranges_)[next_];
    return range.start > position ? range.start : range.end;
  }

 private:
  const std::vector<Ranged>* ranges_;
  std::size_t next_ = 0;
};

}  // namespace whyrss
