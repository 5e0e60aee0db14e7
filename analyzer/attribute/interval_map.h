// Half-open address intervals with a value each, disjoint, equal neighbours joined: what is mapped
// where. O(log n) per change plus what it replaces.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace whyrss {

template <typename Value>
class IntervalMap {
 public:
  struct Interval {
    std::uint64_t end = 0;
    Value value{};
  };
  using Map = std::map<std::uint64_t, Interval>;

  // Replaces whatever lay there.
  void assign(std::uint64_t start, std::uint64_t end, Value value) {
    if (start >= end) return;
    auto after = cut(start, end);
    if (after != intervals_.end() && after->first == end && after->second.value == value) {
      end = after->second.end;
      after = intervals_.erase(after);
    }
    if (after != intervals_.begin()) {
      const auto before = std::prev(after);
      if (before->second.end == start && before->second.value == value) {
        before->second.end = end;
        return;
      }
    }
    intervals_.emplace_hint(after, start, Interval{end, std::move(value)});
  }

  void erase(std::uint64_t start, std::uint64_t end) {
    if (start < end) cut(start, end);
  }

  // All intervals, of which none is left here.
  [[nodiscard]] Map take() { return std::exchange(intervals_, {}); }
  // One that lies behind all others.
  void append(typename Map::node_type interval) {
    if (!intervals_.empty()) {
      Interval& last = std::prev(intervals_.end())->second;
      if (last.end == interval.key() && last.value == interval.mapped().value) {
        last.end = interval.mapped().end;
        return;
      }
    }
    intervals_.insert(intervals_.end(), std::move(interval));
  }

  void clear() { intervals_.clear(); }
  [[nodiscard]] bool empty() const { return intervals_.empty(); }
  [[nodiscard]] const Map& intervals() const { return intervals_; }

  // The interval that holds `address`, or end().
  typename Map::iterator find(std::uint64_t address) {
    auto next = intervals_.upper_bound(address);
    if (next == intervals_.begin()) return intervals_.end();
    const auto found = std::prev(next);
    return found->second.end > address ? found : intervals_.end();
  }
  typename Map::iterator end() { return intervals_.end(); }

  // Calls visit(start, end, value) for every part inside [start, end), in order.
  template <typename Visit>
  void visit_within(std::uint64_t start, std::uint64_t end, Visit visit) const {
    auto at = intervals_.upper_bound(start);
    if (at != intervals_.begin() && std::prev(at)->second.end > start) --at;
    for (; at != intervals_.end() && at->first < end; ++at)
      visit(at->first < start ? start : at->first, at->second.end > end ? end : at->second.end, at->second.value);
  }

  // The parts of [start, end) that have no value, in order.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps_within(std::uint64_t start,
                                                                                 std::uint64_t end) const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;
    visit_within(start, end, [&](std::uint64_t from, std::uint64_t to, const Value&) {
      if (from > start) gaps.emplace_back(start, from);
      start = to;
    });
    if (start < end) gaps.emplace_back(start, end);
    return gaps;
  }

 private:
  // Makes [start, end) empty; returns the first interval at or after `end`.
  typename Map::iterator cut(std::uint64_t start, std::uint64_t end) {
    auto at = intervals_.lower_bound(start);
    if (at != intervals_.begin()) {
      const auto before = std::prev(at);
      if (before->second.end > start) {
        if (before->second.end > end)
          at = intervals_.emplace_hint(at, end, Interval{before->second.end, before->second.value});
        before->second.end = start;
      }
    }
    while (at != intervals_.end() && at->first < end) {
      if (at->second.end > end) {
        Interval rest = std::move(at->second);
        at = intervals_.erase(at);
        return intervals_.emplace_hint(at, end, std::move(rest));
      }
      at = intervals_.erase(at);
    }
    return at;
  }

  Map intervals_;
};

}  // namespace whyrss
