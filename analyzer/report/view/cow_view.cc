#include "report/view/cow_view.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace whyrss {
namespace {

// An estimate that is short of the whole by more than this many standard errors has not seen all of it.
constexpr double kFittingErrors = 3;

struct Estimate {
  std::int64_t bytes = 0;
  double variance = 0;
};

struct CopyGroup {
  std::int64_t copied = 0;  // exact
  std::map<StackId, Estimate> written;
};

struct Made {
  StackId at = kEmptyStack;
  bool in_large_block = false;
  friend auto operator<=>(const Made&, const Made&) = default;
};

void add_sites(const Made& made, const CopyGroup& group, std::vector<CowSiteView>& sites) {
  Estimate sum;
  for (const auto& [stack, estimate] : group.written) {
    sum.bytes += estimate.bytes;
    sum.variance += estimate.variance;
  }
  const auto seen = static_cast<double>(sum.bytes), copied = static_cast<double>(group.copied);
  const bool fits = sum.bytes > 0 && copied - seen <= kFittingErrors * std::sqrt(sum.variance);
  const double scale = fits ? copied / seen : 1;
  std::int64_t rest = group.copied;
  const std::size_t first = sites.size();
  for (const auto& [stack, estimate] : group.written) {
    const auto bytes = static_cast<std::int64_t>(std::floor(static_cast<double>(estimate.bytes) * scale));
    const double share = static_cast<double>(estimate.bytes) / seen, others = 1 - share;
    const double variance = others * others * estimate.variance + share * share * (sum.variance - estimate.variance);
    sites.push_back({.allocated_at = made.at,
                     .written_at = stack,
                     .copied = bytes,
                     .variance = fits ? scale * scale * std::max(variance, 0.0) : estimate.variance,
                     .in_large_block = made.in_large_block});
    rest -= bytes;
  }
  if (fits && sites.size() > first) {
    std::max_element(sites.begin() + static_cast<std::ptrdiff_t>(first), sites.end(),
                     [](const CowSiteView& a, const CowSiteView& b) { return a.copied < b.copied; })
        ->copied += rest;  // of rounding
  } else if (rest != 0) {
    sites.push_back({.allocated_at = made.at,
                     .written_at = kEmptyStack,
                     .copied = rest,
                     .variance = 0,
                     .in_large_block = made.in_large_block});
  }
}

}  // namespace

void add_copies(ProcessView& view, Interval interval) {
  const auto is_in = [&](double time_s) { return time_s > interval.from_s && time_s <= interval.to_s; };
  std::map<Made, CopyGroup> groups;
  for (const CowSlice& slice : view.account->copies) {
    if (!is_in(slice.time_s)) continue;
    view.copied += slice.copied_bytes;
    CopyGroup& group = groups[{slice.allocated_at, slice.in_large_block}];
    group.copied += slice.copied_bytes;
    if (slice.written_at == kEmptyStack) continue;
    Estimate& estimate = group.written[slice.written_at];
    estimate.bytes += slice.copied_bytes;
    estimate.variance += slice.variance;
  }
  for (const SharingChange& change : view.account->sharing) {
    if (!is_in(change.time_s)) continue;
    view.doubtful_copies += change.doubtful_bytes;
    view.copied_by_relatives += change.copied_by_relatives_bytes;
    view.left_by_relatives += change.left_by_relatives_bytes;
    view.reused += change.reused_bytes;
    view.copies_estimate |= change.estimate || !view.account->write_tracked;
  }
  for (const auto& [made, group] : groups) add_sites(made, group, view.cow_sites);
  std::ranges::stable_sort(view.cow_sites, std::ranges::greater{}, &CowSiteView::copied);
}

}  // namespace whyrss
