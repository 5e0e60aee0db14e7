#include "attribute/first_touch_shares.h"

#include <algorithm>
#include <cmath>

namespace whyrss {
namespace {

// Of a number of samples that is to be expected the standard error is a third of it.
constexpr double kFewSamples = 9;
constexpr double kFaultBytes = 4096;
// Of a site that is fitted with others: a smaller share is left out, or each toucher would have a part of each site.
constexpr double kLeastShareBytes = kFaultBytes;

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

FirstTouchShares::FirstTouchShares(const std::vector<TouchedRange>& touched) : touched_(touched) {
  for (std::uint32_t i = 0; i < touched.size(); ++i) {
    (touched[i].by_kernel ? counted_ : sampled_).push_back(i);
    if (touched[i].by_kernel) continue;
    longest_bytes_ = std::max(longest_bytes_, touched[i].end - touched[i].start);
    largest_weight_ = std::max(largest_weight_, touched[i].weight);
  }
}

std::size_t FirstTouchShares::first_from(const Indices& indices, std::uint64_t start) const {
  return static_cast<std::size_t>(
      std::ranges::lower_bound(indices, start, {}, [&](std::uint32_t i) { return touched_[i].start; }) -
      indices.begin());
}

// These are disjoint: their ends are sorted as well.
std::size_t FirstTouchShares::first_counted(std::uint64_t start) const {
  return static_cast<std::size_t>(
      std::ranges::upper_bound(counted_, start, {}, [&](std::uint32_t i) { return touched_[i].end; }) -
      counted_.begin());
}

void FirstTouchShares::add(std::uint32_t site, std::uint64_t start, std::uint64_t end) {
  if (empty()) return;
  visit_within(start, end, [&](std::uint32_t range, std::uint64_t from, std::uint64_t to) {
    add(site, {range, static_cast<double>(to - from)});
  });
}

void FirstTouchShares::add(std::uint32_t site, TouchPart part) {
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

bool FirstTouchShares::is_thin(std::int64_t bytes) const {
  return static_cast<double>(bytes) < kFewSamples * largest_weight_ * kFaultBytes;
}

const FirstTouchShares::Sums& FirstTouchShares::sums_of(const TouchSite& site) const {
  static const Sums kNone;
  return site.number < sites_.size() ? sites_[site.number] : kNone;
}

double FirstTouchShares::counted_bytes(const Sums& sums) {
  double bytes = 0;
  for (const auto& [toucher, sum] : sums)
    if (toucher.is_counted(sum)) bytes += sum.bytes;
  return bytes;
}

std::vector<std::vector<TouchShare>> FirstTouchShares::shares(std::span<const TouchSite> sites,
                                                              bool all_by_faults) const {
  Group group{.samples = {}, .sites = sites.size()};
  for (const TouchSite& site : sites) {
    const Sums& sums = sums_of(site);
    group.bytes += std::max(0.0, static_cast<double>(site.bytes) - counted_bytes(sums));
    for (const auto& [toucher, sum] : sums) {
      group.variance += sum.variance;
      if (toucher.is_counted(sum)) continue;
      Sum& together = group.samples[toucher];
      together.bytes += sum.bytes;
      together.variance += sum.variance;
      group.estimate += sum.bytes;
    }
  }
  std::vector<std::vector<TouchShare>> shares;
  shares.reserve(sites.size());
  for (const TouchSite& site : sites) shares.push_back(shares_of(site, group, all_by_faults));
  return shares;
}

std::vector<TouchShare> FirstTouchShares::shares_of(const TouchSite& site, const Group& group,
                                                    bool all_by_faults) const {
  std::vector<TouchShare> shares;
  double place = 0;
  std::int64_t shared_bytes = 0;
  // Rounded where they end, so that they sum to what they share.
  const auto add = [&](const Toucher& toucher, double bytes, double variance) {
    place += bytes;
    const std::int64_t end = std::clamp(static_cast<std::int64_t>(std::llround(place)), shared_bytes, site.bytes);
    if (end > shared_bytes)
      shares.push_back(
          {.stack = toucher.stack, .bytes = end - shared_bytes, .variance = variance, .by_kernel = toucher.by_kernel});
    shared_bytes = end;
  };
  const Sums& sums = sums_of(site);
  const auto bytes = static_cast<double>(site.bytes);
  const double counted = counted_bytes(sums);
  for (const auto& [toucher, sum] : sums)
    if (toucher.is_counted(sum)) add(toucher, sum.bytes * (counted > bytes ? bytes / counted : 1), 0);
  const Fit fit(group.estimate, group.variance, group.bytes, all_by_faults);
  const double part_of_group = group.bytes > 0 ? std::max(0.0, bytes - counted) / group.bytes : 0;
  for (const auto& [toucher, sum] : group.samples) {
    // A share of a known total errs less than its samples do. The errors of the group's sites sum to the group's.
    const double part = fit.whole ? sum.bytes / group.estimate : 0;
    const double others = std::max(0.0, group.variance - sum.variance);
    const double variance = fit.scale * fit.scale * ((1 - part) * (1 - part) * sum.variance + part * part * others);
    const double here = sum.bytes * fit.scale * part_of_group;
    if (group.sites > 1 && here < kLeastShareBytes) continue;
    add(toucher, here, variance * part_of_group);
  }
  std::ranges::stable_sort(shares, std::ranges::greater{}, &TouchShare::bytes);
  return shares;
}

}  // namespace whyrss
