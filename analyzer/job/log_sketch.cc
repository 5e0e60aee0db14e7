#include "job/log_sketch.h"

#include <algorithm>
#include <cmath>

#include "support/result.h"

namespace whyrss {
namespace {

constexpr double kGamma = (1 + LogSketch::kRelativeError) / (1 - LogSketch::kRelativeError);

std::int32_t bucket_of(std::int64_t value) {
  static const double per_bucket = 1 / std::log(kGamma);
  return value < 1 ? LogSketch::kFirstBucket
                   : static_cast<std::int32_t>(std::ceil(std::log(static_cast<double>(value)) * per_bucket - 1e-9));
}

// In the middle of the bucket's bounds, by ratio.
std::int64_t value_of(std::int32_t bucket) {
  if (bucket < 0) return 0;
  const double value = 2 * std::pow(kGamma, bucket) / (kGamma + 1);
  constexpr auto kMost = static_cast<double>(std::int64_t{1} << 62);
  return value < kMost ? std::llround(value) : std::int64_t{1} << 62;
}

}  // namespace

void LogSketch::add(std::int64_t value, std::uint64_t weight) { add_bucket(bucket_of(value), weight); }

void LogSketch::add_bucket(std::int32_t bucket, std::uint64_t weight) {
  require(bucket >= kFirstBucket && bucket <= kLastBucket, "a bucket of a sketch is in its range");
  if (weight == 0) return;
  if (weights_.empty()) first_ = bucket;
  if (bucket < first_) {
    weights_.insert(weights_.begin(), static_cast<std::size_t>(first_ - bucket), 0);
    first_ = bucket;
  }
  const auto place = static_cast<std::size_t>(bucket - first_);
  if (place >= weights_.size()) weights_.resize(place + 1);
  weights_[place] += weight;
  weight_ += weight;
}

void LogSketch::merge(const LogSketch& other) {
  for (std::size_t i = 0; i < other.weights_.size(); ++i)
    add_bucket(other.first_ + static_cast<std::int32_t>(i), other.weights_[i]);
}

std::vector<LogSketch::Bucket> LogSketch::buckets() const {
  std::vector<Bucket> list;
  for (std::size_t i = 0; i < weights_.size(); ++i)
    if (weights_[i] > 0) list.push_back({first_ + static_cast<std::int32_t>(i), weights_[i]});
  return list;
}

std::int64_t LogSketch::quantile(double share, std::uint64_t zeros) const {
  const double all = static_cast<double>(weight_ + zeros);
  if (all <= 0) return 0;
  const double wanted = std::max(1.0, std::ceil(share * all));
  double seen = static_cast<double>(zeros);
  if (seen >= wanted) return 0;
  std::size_t place = 0;
  while (place + 1 < weights_.size()) {
    seen += static_cast<double>(weights_[place]);
    if (seen >= wanted) break;
    ++place;
  }
  return value_of(first_ + static_cast<std::int32_t>(place));
}

}  // namespace whyrss
