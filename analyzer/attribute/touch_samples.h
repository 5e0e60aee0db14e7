// Sampled page faults by the page that they fell on, at most one per page: what falls on it again takes its place.
// Sorted stretches of 2 MiB, so that a mapping's samples are found, dropped and moved together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

// What a fault brought in, as the first page walk after it tells.
enum class TouchExtent : std::uint8_t { unsettled, page, fault_around, huge_page };

struct TouchSample {
  std::uint64_t page = 0;  // address of its first byte
  std::uint64_t time_ns = 0;
  std::uint32_t weight = 1;  // faults that it stands for
  StackId stack = kEmptyStack;
  TouchExtent extent = TouchExtent::unsettled;
  bool before_block = false;  // another block lay there then
  friend bool operator==(const TouchSample&, const TouchSample&) = default;
};

class TouchSamples {
 public:
  static constexpr std::uint64_t kStretchBytes = 2ULL * 1024 * 1024;  // of a huge page
  using Stretch = std::vector<TouchSample>;                           // by page, never empty

  void put(const TouchSample& sample);
  [[nodiscard]] const TouchSample* find(std::uint64_t page) const;
  void erase(std::uint64_t start, std::uint64_t end);

  [[nodiscard]] bool empty() const { return stretches_.empty(); }
  void clear() { stretches_.clear(); }

  // Calls visit(const TouchSample&) for those in [start, end), by page.
  template <typename Visit>
  void visit_within(std::uint64_t start, std::uint64_t end, Visit visit) const {
    for (auto at = stretches_.lower_bound(stretch_of(start)); at != stretches_.end() && at->first < end; ++at)
      for (const TouchSample& sample : at->second)
        if (sample.page >= start && sample.page < end) visit(sample);
  }

  // The same of change(TouchSample&), which keeps their pages.
  template <typename Change>
  void change_within(std::uint64_t start, std::uint64_t end, Change change) {
    for (auto at = stretches_.lower_bound(stretch_of(start)); at != stretches_.end() && at->first < end; ++at)
      for (TouchSample& sample : at->second)
        if (sample.page >= start && sample.page < end) change(sample);
  }

  // Calls change(Stretch&) for each stretch by address; it may remove samples, and keeps their order.
  template <typename Change>
  void for_each_stretch(Change change) {
    for (auto at = stretches_.begin(); at != stretches_.end();) {
      change(at->second);
      at = at->second.empty() ? stretches_.erase(at) : std::next(at);
    }
  }

 private:
  static std::uint64_t stretch_of(std::uint64_t page) { return page & ~(kStretchBytes - 1); }

  std::map<std::uint64_t, Stretch> stretches_;  // by the address that they begin at
};

}  // namespace whyrss
