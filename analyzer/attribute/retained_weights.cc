#include "attribute/retained_weights.h"

#include <algorithm>
#include <cmath>

#include "support/page_size.h"

namespace whyrss {
namespace {

// Beyond, a page tells for certain; below, one in a million does.
constexpr double kMostRate = 32, kLeastRate = 1e-6;
constexpr int kHalvings = 50;
// A small one may lie on two, a larger one begins and ends on parts of pages.
double most_pages_of(BlockKind kind) {
  constexpr auto kPage = static_cast<double>(kPageBytes);
  return 1 + std::max(1.0, least_bytes_of(kind.size_class) / kPage);
}

}  // namespace

void RetainedWeights::add(BlockKind last, std::int64_t bytes) {
  ++pages_;
  Pages& pages = by_kind_[BlockTurnover::key(last)];
  pages.kind = last;
  pages.count += 1;
  pages.bytes += static_cast<double>(bytes);
}

double RetainedWeights::weight_of(const Pages& last_known, const BlockTurnover& turnover, double rate) {
  const double most_pages = std::max(1.0, turnover.most_live(last_known.kind) * most_pages_of(last_known.kind));
  return std::min(-1 / std::expm1(-turnover.of(last_known.kind) * rate), most_pages / last_known.count);
}

// By halving: the more samples, the fewer pages are needed to tell as much.
double RetainedWeights::rate(const BlockTurnover& turnover) const {
  double low = std::log(kLeastRate), high = std::log(kMostRate);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    double pages = 0;
    for (const auto& [key, last_known] : by_kind_)
      pages += last_known.count * weight_of(last_known, turnover, std::exp(middle));
    (pages > static_cast<double>(pages_) ? low : high) = middle;
  }
  return std::exp(high);
}

void RetainedWeights::add_to(HeapShares& shares, const BlockTurnover& turnover) const {
  if (by_kind_.empty()) return;
  const double rate = this->rate(turnover);
  for (const auto& [key, last_known] : by_kind_) {
    const double weight = weight_of(last_known, turnover, rate);
    shares.add_samples(last_known.kind.stack, last_known.bytes * std::min(weight, 1.0), std::max(weight, 1.0),
                       last_known.count);
  }
}

}  // namespace whyrss
