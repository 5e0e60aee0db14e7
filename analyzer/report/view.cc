#include "report/view.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "report/cow_view.h"
#include "report/memory_accounting.h"

namespace whyrss {
namespace {

// A kernel reading belongs to a walk when it was taken at most this long before it: readings come with
// walks, and a family's walk takes a moment.
constexpr double kReadingNearSeconds = 2;

template <typename T>
const T* last_at(const std::vector<T>& series, double time_s) {
  const auto after = std::upper_bound(series.begin(), series.end(), time_s,
                                      [](double time, const T& entry) { return time < entry.time_s; });
  return after == series.begin() ? nullptr : &*(after - 1);
}

using PerCause = std::array<std::int64_t, kCauseCount>;

struct CauseBytes {
  PerCause rss{}, exclusive{};
  std::int64_t exclusive_sum = 0;
};

CauseBytes sum_causes(const Account* account) {
  CauseBytes sums;
  if (account == nullptr) return sums;
  for (const Slice& slice : account->slices) {
    const auto index = static_cast<std::size_t>(slice.site.cause);
    sums.rss.at(index) += slice.bytes;
    sums.exclusive.at(index) += slice.exclusive_bytes;
    sums.exclusive_sum += slice.exclusive_bytes;
  }
  return sums;
}

// The walks that count in an interval: the one in force at its start, then all in it.
std::vector<const Account*> walks_in(const ProcessAccount& process, Interval interval) {
  std::vector<const Account*> walks;
  if (const Account* first = last_at(process.accounts, interval.from_s)) walks.push_back(first);
  for (const Account& account : process.accounts)
    if (account.time_s > interval.from_s && account.time_s <= interval.to_s) walks.push_back(&account);
  return walks;
}

// PSS of the state at a time. Null when the walk that tells the state came without a reading.
std::optional<std::int64_t> pss_at(const ProcessAccount& process, double time_s) {
  if (process.accounts.empty()) return std::nullopt;
  const Account* walk = last_at(process.accounts, time_s);
  if (walk == nullptr) return 0;
  // The reading may come a moment after its walk, and so after the end of the interval.
  const KernelTotals* totals = last_at(process.totals, std::max(time_s, walk->time_s + kReadingNearSeconds));
  if (totals == nullptr || totals->time_s < walk->time_s - kReadingNearSeconds) return std::nullopt;
  return totals->pss_bytes;
}

void larger(std::optional<std::int64_t>& peak, const std::optional<std::int64_t>& value) {
  if (value && (!peak || *value > *peak)) peak = value;
}

ReadFigure pss_figure(const ProcessAccount& process, Interval interval) {
  ReadFigure pss{pss_at(process, interval.from_s), pss_at(process, interval.to_s), std::nullopt};
  for (const KernelTotals& totals : process.totals)
    if (totals.time_s > interval.from_s && totals.time_s <= interval.to_s) larger(pss.peak, totals.pss_bytes);
  larger(pss.peak, pss.first);
  larger(pss.peak, pss.last);
  return pss;
}

using Touchers = std::map<std::pair<StackId, bool>, TouchView>;

void add_touch(const Slice& slice, std::int64_t sign, Touchers& touchers) {
  std::int64_t open = slice.bytes;
  const auto add = [&](StackId stack, bool by_kernel, std::int64_t bytes, double variance) {
    TouchView& touch = touchers[{stack, by_kernel}];
    touch.stack = stack;
    touch.by_kernel = by_kernel;
    touch.growth += sign * bytes;
    if (sign > 0) touch.resident += bytes;
    touch.variance += variance;
  };
  for (const TouchShare& share : slice.touched) {
    add(share.stack, share.by_kernel, share.bytes, share.variance);
    open -= share.bytes;
  }
  add(kEmptyStack, false, open, 0);
}

std::vector<TouchView> touch_views(const Touchers& touchers) {
  std::vector<TouchView> views;
  const bool known = std::any_of(touchers.begin(), touchers.end(), [](const auto& entry) {
    return entry.second.stack != kEmptyStack || entry.second.by_kernel;
  });
  if (!known) return views;
  for (const auto& [key, touch] : touchers)
    if (touch.growth != 0 || touch.resident != 0) views.push_back(touch);
  std::stable_sort(views.begin(), views.end(), [](const TouchView& a, const TouchView& b) {
    return std::tie(a.growth, a.resident) > std::tie(b.growth, b.resident);
  });
  return views;
}

std::map<Site, SiteView> site_views(const Account* first, const Account* last, const Account* peak) {
  std::map<Site, SiteView> sites;
  std::map<Site, Touchers> touchers;
  const auto add = [&](const Account* account, auto&& count) {
    if (account == nullptr) return;
    for (const Slice& slice : account->slices) {
      SiteView& site = sites[slice.site];
      site.stack = slice.site.stack;
      site.mapping = slice.site.mapping;
      count(site, slice);
    }
  };
  // Blocks that live at both ends were sampled once: the errors cancel in part, and their sum is too cautious.
  add(first, [&](SiteView& site, const Slice& slice) {
    add_touch(slice, -1, touchers[slice.site]);
    site.growth -= slice.bytes;
    site.variance += slice.variance;
  });
  add(last, [&](SiteView& site, const Slice& slice) {
    add_touch(slice, 1, touchers[slice.site]);
    site.growth += slice.bytes;
    site.resident += slice.bytes;
    site.variance += slice.variance;
  });
  add(peak, [](SiteView& site, const Slice& slice) { site.at_peak += slice.bytes; });
  for (const auto& [site, of_site] : touchers) sites[site].touched = touch_views(of_site);
  return sites;
}

// Where page liveness is missing, samples tell what of the heap is live.
bool is_estimate(Cause cause, const Account* account) {
  const bool heap = cause == Cause::heap_live || cause == Cause::heap_slack || cause == Cause::heap_retained ||
                    cause == Cause::heap_metadata;
  return heap && account != nullptr && !account->has_liveness;
}

std::vector<CauseView> cause_views(const std::vector<const Account*>& walks, const Account* first, const Account* last,
                                   const Account* peak) {
  const CauseBytes first_sums = sum_causes(first), last_sums = sum_causes(last), peak_sums = sum_causes(peak);
  PerCause peaks{};
  for (const Account* walk : walks) {
    const CauseBytes sums = sum_causes(walk);
    for (std::size_t i = 0; i < kCauseCount; ++i) peaks.at(i) = std::max(peaks.at(i), sums.rss.at(i));
  }
  const std::map<Site, SiteView> sites = site_views(first, last, peak);

  std::vector<CauseView> views;
  for (std::size_t i = 0; i < kCauseCount; ++i) {
    if (peaks.at(i) == 0) continue;
    CauseView view;
    view.cause = static_cast<Cause>(i);
    view.rss = {first_sums.rss.at(i), last_sums.rss.at(i), peaks.at(i)};
    view.at_peak = peak_sums.rss.at(i);
    view.uss_growth = last_sums.exclusive.at(i) - first_sums.exclusive.at(i);
    view.estimate = is_estimate(view.cause, first) || is_estimate(view.cause, last) || is_estimate(view.cause, peak);
    if (view.cause == Cause::fork_shared) view.sole_owner = last_sums.exclusive.at(i);
    for (const auto& [key, site] : sites)
      if (key.cause == view.cause) view.sites.push_back(site);
    std::stable_sort(view.sites.begin(), view.sites.end(), [](const SiteView& a, const SiteView& b) {
      return std::tie(a.growth, a.resident) > std::tie(b.growth, b.resident);
    });
    views.push_back(std::move(view));
  }
  std::stable_sort(views.begin(), views.end(),
                   [](const CauseView& a, const CauseView& b) { return a.rss.growth() > b.rss.growth(); });
  return views;
}

ProcessView process_view(const ProcessAccount& process, Interval interval) {
  ProcessView view;
  view.account = &process;
  view.walked = !process.accounts.empty();
  const Account* first = last_at(process.accounts, interval.from_s);
  const Account* last = last_at(process.accounts, interval.to_s);
  const Account* peak = nullptr;
  const std::vector<const Account*> walks = walks_in(process, interval);
  for (const Account* walk : walks) {
    if (peak == nullptr || walk->rss_bytes > peak->rss_bytes) peak = walk;
    view.uss.peak = std::max(view.uss.peak, sum_causes(walk).exclusive_sum);
  }
  const auto rss = [](const Account* account) { return account == nullptr ? 0 : account->rss_bytes; };
  view.rss = {rss(first), rss(last), rss(peak)};
  view.uss.first = sum_causes(first).exclusive_sum;
  view.uss.last = sum_causes(last).exclusive_sum;
  view.pss = pss_figure(process, interval);
  view.causes = cause_views(walks, first, last, peak);
  const PymallocBytes before = first == nullptr ? PymallocBytes{} : first->pymalloc;
  if (last != nullptr) view.pymalloc = last->pymalloc;
  view.pymalloc_growth = {view.pymalloc.live - before.live, view.pymalloc.slack - before.slack,
                          view.pymalloc.retained - before.retained};
  if (const KernelTotals* totals = last_at(process.totals, interval.to_s)) {
    view.swap = totals->swap_bytes;
    view.hugetlb = totals->hugetlb_bytes;
    view.page_tables = totals->page_table_bytes;
  }
  add_copies(view, interval);
  return view;
}

bool alive(const ProcessAccount& process, double time_s) {
  return process.born_s <= time_s && (!process.ended_s || *process.ended_s >= time_s);
}

std::int64_t family_rss(const RecordingAccount& recording, double time_s) {
  std::int64_t sum = 0;
  for (const ProcessAccount& process : recording.processes) {
    const Account* account = alive(process, time_s) ? last_at(process.accounts, time_s) : nullptr;
    if (account != nullptr) sum += account->rss_bytes;
  }
  return sum;
}

std::optional<std::int64_t> family_pss(const RecordingAccount& recording, double time_s) {
  std::int64_t sum = 0;
  for (const ProcessAccount& process : recording.processes) {
    if (!alive(process, time_s) || process.accounts.empty()) continue;  // never walked: as in rss_sum
    const auto pss = pss_at(process, time_s);
    if (!pss) return std::nullopt;
    sum += *pss;
  }
  return sum;
}

FamilyView family_view(const RecordingAccount& recording, Interval interval) {
  FamilyView family;
  std::set<double> moments{interval.from_s, interval.to_s};
  for (const ProcessAccount& process : recording.processes) {
    for (const Account& account : process.accounts) moments.insert(account.time_s);
    for (const KernelTotals& totals : process.totals) moments.insert(totals.time_s);
  }
  for (const double time_s : moments) {
    if (time_s < interval.from_s || time_s > interval.to_s) continue;
    family.rss_sum.peak = std::max(family.rss_sum.peak, family_rss(recording, time_s));
    larger(family.pss.peak, family_pss(recording, time_s));
  }
  family.accounting = account_memory(recording, interval);
  family.accounting.rss_sum = std::max(family.accounting.rss_sum, family.rss_sum.peak);
  family.rss_sum.first = family_rss(recording, interval.from_s);
  family.rss_sum.last = family_rss(recording, interval.to_s);
  family.pss.first = family_pss(recording, interval.from_s);
  family.pss.last = family_pss(recording, interval.to_s);
  return family;
}

}  // namespace

const CauseView* ProcessView::find(Cause cause) const {
  for (const CauseView& view : causes)
    if (view.cause == cause) return &view;
  return nullptr;
}

View build_view(const RecordingAccount& recording, Interval interval, std::optional<int> only_pid) {
  View view;
  view.recording = &recording;
  view.interval = interval;
  view.family = family_view(recording, interval);
  for (const ProcessAccount& process : recording.processes)
    if (!only_pid || process.pid == *only_pid) view.processes.push_back(process_view(process, interval));
  return view;
}

}  // namespace whyrss
