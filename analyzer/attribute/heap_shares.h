// Shares out a number of bytes among the stacks that are known, or that samples speak for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

enum class Samples : std::uint8_t {
  complete,   // nothing was left out: what they do not explain has the empty stack
  scaled,     // they speak for all bytes that are not known otherwise
  estimated,  // they say themselves how many bytes they speak for
};

class HeapShares {
 public:
  void add_known(StackId stack, double bytes) { sum_of(stack).known += bytes; }

  // `count` things of this stack with `bytes` together, each of which stands for `weight` like it: its chance to be
  // among the samples was 1 / weight. Horvitz-Thompson estimate under Poisson sampling.
  void add_samples(StackId stack, double bytes, double weight, double count = 1) {
    Sum& sum = sum_of(stack);
    const double estimate = bytes * weight;
    sum.estimate += estimate;
    sum.variance += (1 - 1 / weight) * estimate * estimate / count;
  }

  [[nodiscard]] bool has_samples() const;
  [[nodiscard]] double estimated_bytes() const;

  struct Share {
    StackId stack = kEmptyStack;
    std::int64_t bytes = 0;
    double variance = 0;
  };
  // Sorted by stack; sums to `total_bytes`.
  [[nodiscard]] std::vector<Share> share_out(std::int64_t total_bytes, Samples samples) const;

 private:
  struct Sum {
    double known = 0, estimate = 0, variance = 0;
  };
  Sum& sum_of(StackId stack) {
    const auto index = static_cast<std::size_t>(stack);
    if (index >= sums_.size()) sums_.resize(index + 1);
    return sums_[index];
  }

  std::vector<Sum> sums_;  // by stack: StackTable numbers them without gaps
};

}  // namespace whyrss
