#include "attribute/touch_books.h"

#include <algorithm>
#include <cmath>

namespace whyrss {
namespace {

constexpr double kStandardErrors = 3;

// Fits samples to the bytes that they can speak for.
struct Fit {
  double scale = 1;
  bool whole = false;  // they speak for all of these bytes, whose number is known

  Fit(double estimate, double variance, double bytes) {
    whole = estimate > 0 && estimate + kStandardErrors * std::sqrt(variance) >= bytes;
    if (whole) scale = bytes / estimate;
  }
};

}  // namespace

TouchBooks::TouchBooks(const std::vector<TouchedRange>& touched) : touched_(touched) {
  for (std::uint32_t i = 0; i < touched.size(); ++i) {
    (touched[i].by_kernel ? counted_ : sampled_).push_back(i);
    if (!touched[i].by_kernel) longest_bytes_ = std::max(longest_bytes_, touched[i].end - touched[i].start);
  }
}

std::size_t TouchBooks::first_from(const Indices& indices, std::uint64_t start) const {
  return static_cast<std::size_t>(
      std::ranges::lower_bound(indices, start, {}, [&](std::uint32_t i) { return touched_[i].start; }) -
      indices.begin());
}

// These are disjoint: their ends are sorted as well.
std::size_t TouchBooks::first_counted(std::uint64_t start) const {
  return static_cast<std::size_t>(
      std::ranges::upper_bound(counted_, start, {}, [&](std::uint32_t i) { return touched_[i].end; }) -
      counted_.begin());
}

void TouchBooks::add(std::uint32_t site, std::uint64_t start, std::uint64_t end) {
  if (empty()) return;
  visit_within(start, end, [&](std::uint32_t range, std::uint64_t from, std::uint64_t to) {
    add(site, {range, static_cast<double>(to - from)});
  });
}

void TouchBooks::add(std::uint32_t site, TouchPart part) {
  if (site >= sites_.size()) sites_.resize(site + 1);
  const TouchedRange& range = touched_[part.range];
  Sum& sum = sites_[site][{range.stack, range.by_kernel}];
  sum.bytes += range.weight * part.bytes;
  if (range.by_kernel) return;
  if (sum.bytes > range.weight * part.bytes && sum.last.range == part.range) {
    const double before = sum.last.bytes, after = before + part.bytes;
    sum.variance += (1 - 1 / range.weight) * range.weight * range.weight * (after * after - before * before);
    sum.last.bytes = after;
    return;
  }
  sum.variance += (1 - 1 / range.weight) * range.weight * range.weight * part.bytes * part.bytes;
  sum.last = part;
}

std::vector<TouchShare> TouchBooks::shares(std::uint32_t site, std::int64_t site_bytes) const {
  std::vector<TouchShare> shares;
  if (site >= sites_.size()) return shares;
  double counted = 0, estimate = 0, variance = 0;
  for (const auto& [toucher, sum] : sites_[site]) {
    (toucher.by_kernel ? counted : estimate) += sum.bytes;
    variance += sum.variance;
  }
  const auto bytes = static_cast<double>(site_bytes);
  const double counted_scale = counted > bytes ? bytes / counted : 1;
  const Fit fit(estimate, variance, std::max(0.0, bytes - counted));
  double place = 0;
  std::int64_t shared_bytes = 0;
  for (const auto& [toucher, sum] : sites_[site]) {
    // Rounded where they end, so that they sum to what they share.
    place += sum.bytes * (toucher.by_kernel ? counted_scale : fit.scale);
    const std::int64_t end = std::clamp(static_cast<std::int64_t>(std::llround(place)), shared_bytes, site_bytes);
    if (end == shared_bytes) continue;
    // A share of a known total errs less than its samples do.
    const double part = fit.whole && !toucher.by_kernel ? sum.bytes / estimate : 0;
    const double others = std::max(0.0, variance - sum.variance);
    shares.push_back(
        {.stack = toucher.stack,
         .bytes = end - shared_bytes,
         .variance = toucher.by_kernel
                         ? 0
                         : fit.scale * fit.scale * ((1 - part) * (1 - part) * sum.variance + part * part * others),
         .by_kernel = toucher.by_kernel});
    shared_bytes = end;
  }
  std::ranges::stable_sort(shares, std::ranges::greater{}, &TouchShare::bytes);
  return shares;
}

}  // namespace whyrss
