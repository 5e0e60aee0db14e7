// Shares out a number of bytes among the stacks that are known, or that samples speak for.
#pragma once

#include <cstdint>
#include <unordered_map>
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
    if (last_ == nullptr || last_stack_ != stack) {
      last_ = &sums_[stack];  // stays where it is: unordered_map never moves its elements
      last_stack_ = stack;
    }
    return *last_;
  }

  std::unordered_map<StackId, Sum> sums_;
  Sum* last_ = nullptr;
  StackId last_stack_ = kEmptyStack;
};

}  // namespace whyrss
