// What a program gave up with MADV_FREE. Its pages stay until the kernel needs them; a write takes one back without a
// fault or an event, so that a range says where such pages may be, not where they are.
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/interval_map.h"
#include "model/stack_table.h"

namespace whyrss {

struct AdvisedRange {
  std::uint64_t start = 0, end = 0;
  StackId stack = kEmptyStack;  // the call that gave it up
  std::uint64_t order = 0;      // of the calls: later ones have larger numbers
  bool reused = false;          // a large block was allocated there since
  friend bool operator==(const AdvisedRange&, const AdvisedRange&) = default;
};

class AdvisedPages {
 public:
  void advise(std::uint64_t start, std::uint64_t end, StackId stack) { ranges_.assign(start, end, {stack, ++calls_}); }
  void forget(std::uint64_t start, std::uint64_t end) { ranges_.erase(start, end); }
  void reuse(std::uint64_t start, std::uint64_t end) {
    for (const AdvisedRange& range : within(start, end))
      ranges_.assign(range.start, range.end, {range.stack, range.order, true});
  }

  // Sorted, disjoint.
  [[nodiscard]] std::vector<AdvisedRange> within(std::uint64_t start, std::uint64_t end) const {
    std::vector<AdvisedRange> found;
    ranges_.visit_within(start, end, [&](std::uint64_t from, std::uint64_t to, const Advice& advice) {
      found.push_back({from, to, advice.stack, advice.order, advice.reused});
    });
    return found;
  }
  // What was found there, at another place.
  void restore(const std::vector<AdvisedRange>& ranges, std::uint64_t old_start, std::uint64_t new_start) {
    for (const AdvisedRange& range : ranges)
      ranges_.assign(new_start + (range.start - old_start), new_start + (range.end - old_start),
                     {range.stack, range.order, range.reused});
  }

 private:
  struct Advice {
    StackId stack = kEmptyStack;
    std::uint64_t order = 0;
    bool reused = false;
    friend bool operator==(const Advice&, const Advice&) = default;
  };
  IntervalMap<Advice> ranges_;
  std::uint64_t calls_ = 0;
};

}  // namespace whyrss
