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

  Fit(double estimate, double variance, double bytes, bool all_by_faults) {
    whole = estimate > 0 && (all_by_faults || estimate + kStandardErrors * std::sqrt(variance) >= bytes);
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
  const double weight = range.weight * range.calls;
  const double stands_for = range.by_kernel ? range.calls : range.weight;
  const double variance_per_square = (1 - 1 / stands_for) * weight * weight;
  const bool goes_on = sum.bytes > 0 && sum.last.range == part.range;
  const double before = goes_on ? sum.last.bytes : 0, after = before + part.bytes;
  sum.bytes += weight * part.bytes;
  sum.variance += variance_per_square * (after * after - before * before);
  sum.last = {part.range, after};
}

std::vector<TouchShare> TouchBooks::shares(std::uint32_t site, std::int64_t site_bytes, bool all_by_faults) const {
  std::vector<TouchShare> shares;
  if (site >= sites_.size()) return shares;
  double counted = 0, estimate = 0, variance = 0;
  for (const auto& [toucher, sum] : sites_[site]) {
    (sum.variance == 0 && toucher.by_kernel ? counted : estimate) += sum.bytes;
    variance += sum.variance;
  }
  const auto bytes = static_cast<double>(site_bytes);
  const double counted_scale = counted > bytes ? bytes / counted : 1;
  const Fit fit(estimate, variance, std::max(0.0, bytes - counted), all_by_faults);
  double place = 0;
  std::int64_t shared_bytes = 0;
  for (const auto& [toucher, sum] : sites_[site]) {
    const bool is_counted = sum.variance == 0 && toucher.by_kernel;
    // Rounded where they end, so that they sum to what they share.
    place += sum.bytes * (is_counted ? counted_scale : fit.scale);
    const std::int64_t end = std::clamp(static_cast<std::int64_t>(std::llround(place)), shared_bytes, site_bytes);
    if (end == shared_bytes) continue;
    // A share of a known total errs less than its samples do.
    const double part = fit.whole && !is_counted ? sum.bytes / estimate : 0;
    const double others = std::max(0.0, variance - sum.variance);
    shares.push_back(
        {.stack = toucher.stack,
         .bytes = end - shared_bytes,
         .variance =
             is_counted ? 0 : fit.scale * fit.scale * ((1 - part) * (1 - part) * sum.variance + part * part * others),
         .by_kernel = toucher.by_kernel});
    shared_bytes = end;
  }
  std::ranges::stable_sort(shares, std::ranges::greater{}, &TouchShare::bytes);
  return shares;
}

}  // namespace whyrss
