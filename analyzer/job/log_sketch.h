// A histogram whose bounds grow by 2 %: quantiles to within 1 % of their value, however many values there are.
//
// Two of them merge by adding counts, so the order of merges does not matter (DDSketch, VLDB 2019). A t-digest is
// smaller, but its clusters depend on the order.
#pragma once

#include <cstdint>
#include <vector>

namespace whyrss {

class LogSketch {
 public:
  static constexpr double kRelativeError = 0.01;

  // Values below 1 count as 0, which has a bucket of its own.
  void add(std::int64_t value, std::uint64_t weight = 1);
  void merge(const LogSketch& other);

  [[nodiscard]] std::uint64_t weight() const { return weight_; }
  // The value below or at which `share` of the weight lies, from 0 to 1; of an even number the lower one in the middle.
  // `zeros`: further values of 0 that were not added.
  [[nodiscard]] std::int64_t quantile(double share, std::uint64_t zeros = 0) const;

  // For files: buckets that have a weight, in order.
  struct Bucket {
    std::int32_t number = 0;
    std::uint64_t weight = 0;
  };
  [[nodiscard]] std::vector<Bucket> buckets() const;
  static constexpr std::int32_t kFirstBucket = -1, kLastBucket = 2200;  // of 0, and of more than any value
  void add_bucket(std::int32_t bucket, std::uint64_t weight);

  friend bool operator==(const LogSketch&, const LogSketch&) = default;

 private:
  std::int32_t first_ = 0;              // bucket of weights_[0]
  std::vector<std::uint64_t> weights_;  // from the first bucket that has one to the last
  std::uint64_t weight_ = 0;
};

}  // namespace whyrss
