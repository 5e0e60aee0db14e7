#include "report/view/build_view.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "report/view/cow_view.h"
#include "report/view/file_pss.h"
#include "report/view/final_frees.h"
#include "report/view/memory_accounting.h"
#include "report/view/memory_figures.h"
#include "report/view/series.h"
#include "report/view/site_views.h"

namespace whyrss {
namespace {

// A kernel reading belongs to a walk when it was taken at most this long before it: readings come with
// walks, and a family's walk takes a moment.
constexpr double kReadingNearSeconds = 2;

// Where PSS of a process up to this size (a shell, a helper) was never read, an estimate by its walk is good enough.
constexpr std::int64_t kUnreadBytes = 8LL * 1024 * 1024;

using PerCause = std::array<std::int64_t, kCauseCount>;

struct CauseBytes {
  PerCause rss{}, exclusive{};
  std::int64_t exclusive_sum = 0;
};

CauseBytes sum_causes(const Account* account) {
  CauseBytes sums;
  if (account == nullptr) return sums;
  for (std::size_t i = 0; i < kCauseCount; ++i) {
    const SliceList::Sum sum = account->slices.sum_of(static_cast<Cause>(i));
    sums.rss.at(i) = sum.bytes;
    sums.exclusive.at(i) = sum.exclusive_bytes;
    sums.exclusive_sum += sum.exclusive_bytes;
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

// The reading of the state that a walk shows and that was in force at a time: one that was taken by then, else the
// first after the walk and before the next one, as a reading comes a moment later. Later ones show what came after:
// others have mapped the same pages, or have ended. None after `latest_s`.
const KernelTotals* reading_of(const ProcessAccount& process, const Account& walk, double time_s, double latest_s) {
  const auto first = std::ranges::lower_bound(process.totals, walk.time_s, {}, &KernelTotals::time_s);
  const auto next = std::ranges::upper_bound(process.accounts, walk.time_s, {}, &Account::time_s);
  const double until_s = next == process.accounts.end() ? walk.time_s + kReadingNearSeconds : next->time_s;
  const bool came_with_it = first != process.totals.end() &&
                            first->time_s <= std::min({until_s, walk.time_s + kReadingNearSeconds, latest_s});
  return last_at(process.totals, came_with_it ? std::max(time_s, first->time_s) : time_s);
}

struct PssAt {
  std::optional<std::int64_t> bytes;  // null when PSS was never read
  double read_s = 0;
  bool estimate = false;
  std::int64_t file_bytes = 0;  // of them of files and shared memory, as far as it is known
};

std::int64_t file_pss(const KernelTotals& totals) {
  return totals.pss_file_bytes.value_or(0) + totals.pss_shmem_bytes.value_or(0);
}

// PSS of the state at a time, by readings until `latest_s`. A reading that came before a relative copied tells of that
// state no more, though nothing but the PSS of this process has moved: then the next one does, if it is of the same
// state.
PssAt pss_at(const ProcessTimes& times, const ProcessAccount& process, double time_s,
             double latest_s = std::numeric_limits<double>::infinity()) {
  if (process.accounts.empty()) return {};
  const Account* walk = last_at(process.accounts, time_s);
  if (walk == nullptr) return {.bytes = 0};
  const auto is_of_walk = [&](const KernelTotals& read) {
    return read.pss_bytes && is_like(read.rss_bytes.value_or(walk->rss_bytes), walk->rss_bytes) &&
           !shares_otherwise(process, read, time_s) &&
           !(read.time_s > time_s && family_grew(times, process, time_s, read.time_s));
  };
  const auto as_read = [&](const KernelTotals& read, bool estimate) {
    return PssAt{std::min(*read.pss_bytes, walk->rss_bytes), read.time_s, estimate, file_pss(read)};
  };
  const KernelTotals* totals = reading_of(process, *walk, time_s, latest_s);
  const bool fits = totals != nullptr && totals->time_s >= walk->time_s - kReadingNearSeconds && is_of_walk(*totals);
  if (fits && !relatives_copied(times, process, *totals, time_s)) return as_read(*totals, false);
  const KernelTotals* next = first_after(process.totals, time_s);
  if (next != nullptr && next->time_s <= std::min(time_s + kReadingNearSeconds, latest_s) && is_of_walk(*next) &&
      !relatives_copied(times, process, *next, time_s))
    return as_read(*next, true);
  if (fits) return as_read(*totals, true);
  const bool read_once =
      std::ranges::any_of(process.totals, [](const auto& read) { return read.pss_bytes.has_value(); });
  if (!read_once && walk->rss_bytes > kUnreadBytes) return {};
  const KernelTotals estimate = estimate_at_walk(times, process, *walk);
  return {estimate.pss_bytes, walk->time_s, true, file_pss(estimate)};
}

void larger(std::optional<std::int64_t>& peak, const std::optional<std::int64_t>& value) {
  if (value && (!peak || *value > *peak)) peak = value;
}

void larger(ReadFigure& figure, const PssAt& pss) {
  if (pss.bytes && (!figure.peak || *pss.bytes > *figure.peak)) {
    figure.peak = pss.bytes;
    figure.peak_estimate = pss.estimate;
  }
}

ReadFigure pss_figure(const ProcessTimes& times, const ProcessAccount& process, Interval interval) {
  const PssAt first = pss_at(times, process, interval.from_s), last = pss_at(times, process, interval.to_s);
  ReadFigure pss{first.bytes, last.bytes, std::nullopt, first.estimate || last.estimate, false};
  for (const KernelTotals& totals : process.totals)
    if (totals.time_s > interval.from_s && totals.time_s <= interval.to_s) larger(pss.peak, totals.pss_bytes);
  larger(pss, first);
  larger(pss, last);
  for (const Account* walk : walks_in(process, interval)) larger(pss, pss_at(times, process, walk->time_s));
  return pss;
}

// Where page liveness is missing, samples tell what of the heap is live. Writing to a page that was given up with
// MADV_FREE needs no fault: between walks no event says that it is in use again.
bool is_estimate(Cause cause, const Account* account) {
  if (cause == Cause::lazy_free)
    return account != nullptr && account->estimated_from_s &&
           std::ranges::any_of(account->slices,
                               [](const Slice& slice) { return slice.site.cause == Cause::lazy_free; });
  const bool heap = cause == Cause::heap_live || cause == Cause::heap_slack || cause == Cause::heap_retained ||
                    cause == Cause::heap_metadata;
  return heap && account != nullptr && !account->has_liveness;
}

double variance_of(Cause cause, const Account& account) {
  double variance = 0;
  for (const Slice& slice : account.slices)
    if (slice.site.cause == cause) variance += slice.variance;
  return variance;
}

std::vector<CauseView> cause_views(const std::vector<const Account*>& walks, const Account* first, const Account* last,
                                   const Account* peak, const Account* huge) {
  const CauseBytes first_sums = sum_causes(first), last_sums = sum_causes(last), peak_sums = sum_causes(peak);
  PerCause peaks{};
  for (const Account* walk : walks) {
    const CauseBytes sums = sum_causes(walk);
    for (std::size_t i = 0; i < kCauseCount; ++i) peaks.at(i) = std::max(peaks.at(i), sums.rss.at(i));
  }
  std::vector<CauseView> views;
  for (std::size_t i = 0; i < kCauseCount; ++i) {
    if (peaks.at(i) == 0) continue;
    CauseView view;
    view.cause = static_cast<Cause>(i);
    view.rss = {first_sums.rss.at(i), last_sums.rss.at(i), peaks.at(i)};
    view.at_peak = peak_sums.rss.at(i);
    view.uss_growth = last_sums.exclusive.at(i) - first_sums.exclusive.at(i);
    view.estimate = is_estimate(view.cause, first) || is_estimate(view.cause, last) || is_estimate(view.cause, peak);
    for (const Account* end : {first, last})
      if (end != nullptr && end->estimated_from_s) view.variance += variance_of(view.cause, *end);
    if (view.cause == Cause::fork_shared) view.sole_owner = last_sums.exclusive.at(i);
    view.sites = site_views(view.cause, first, last, peak, huge);
    views.push_back(std::move(view));
  }
  std::stable_sort(views.begin(), views.end(),
                   [](const CauseView& a, const CauseView& b) { return a.rss.growth() > b.rss.growth(); });
  return views;
}

std::optional<StateMoment> moment_of(const Account* account) {
  if (account == nullptr) return std::nullopt;
  return StateMoment{account->time_s, account->estimated_from_s.value_or(account->time_s)};
}

// `peak_s`: which walk is that of the peak, instead of the one with the largest RSS.
ProcessView process_view(const ProcessTimes& times, const ProcessAccount& process, Interval interval,
                         std::optional<double> peak_s = std::nullopt) {
  ProcessView view;
  view.account = &process;
  view.interval = interval;
  view.walked = !process.accounts.empty();
  const Account* first = last_at(process.accounts, interval.from_s);
  const Account* last = last_at(process.accounts, interval.to_s);
  const Account* peak = nullptr;
  const std::vector<const Account*> walks = walks_in(process, interval);
  for (const Account* walk : walks) {
    if (peak == nullptr || walk->rss_bytes > peak->rss_bytes) peak = walk;
    view.uss.peak = std::max(view.uss.peak, sum_causes(walk).exclusive_sum);
  }
  if (peak_s) peak = last_at(process.accounts, *peak_s);
  const auto rss = [](const Account* account) { return account == nullptr ? 0 : account->rss_bytes; };
  view.rss = {rss(first), rss(last), rss(peak)};
  view.at_first = moment_of(first);
  view.at_last = moment_of(last);
  view.at_peak = moment_of(peak);
  view.uss.first = sum_causes(first).exclusive_sum;
  view.uss.last = sum_causes(last).exclusive_sum;
  view.pss = pss_figure(times, process, interval);
  const auto inspected = std::ranges::find_if(walks.rbegin(), walks.rend(), &Account::has_huge);
  view.causes = cause_views(walks, first, last, peak, inspected == walks.rend() ? nullptr : *inspected);
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
  const RecordingInfo& info = times.recording().info;
  view.unmapped.first = unmapped_at(info, process, interval.from_s);
  view.unmapped.last = unmapped_at(info, process, interval.to_s);
  view.unmapped.peak = std::max(view.unmapped.first, view.unmapped.last);
  for (const UnmappedMemory& read : process.unmapped)
    if (read.time_s > interval.from_s && read.time_s <= interval.to_s) larger(view.unmapped.peak, read.bytes);
  return view;
}

std::int64_t family_rss(const ProcessTimes& times, double time_s) {
  std::int64_t sum = 0;
  for (const ProcessAccount* process : times.near(time_s)) {
    const Account* account = is_there(*process, time_s) ? last_at(process->accounts, time_s) : nullptr;
    if (account != nullptr) sum += account->rss_bytes;
  }
  return sum;
}

// Of a process that was read before a moment and soon after it the smaller: what it shares since then with one that was
// read at that moment counts there.
std::optional<std::int64_t> least_pss(const ProcessAccount& process, const PssAt& pss, double time_s) {
  if (!pss.bytes || pss.read_s >= time_s) return pss.bytes;
  const auto next = std::ranges::find_if(process.totals, [&](const KernelTotals& read) {
    return read.time_s > time_s && read.time_s <= time_s + kReadingNearSeconds && read.pss_bytes.has_value();
  });
  return next == process.totals.end() ? pss.bytes : std::min(*pss.bytes, *next->pss_bytes);
}

// Readings count up to the time at which the next process leaves. A process that had left when others were read is not
// counted: as soon as it is gone, what it shared with them counts in theirs. `cautious`: nor is anything counted twice
// that others came to share.
PssAt family_pss(const ProcessTimes& times, double time_s, bool cautious = false) {
  std::vector<std::pair<const ProcessAccount*, PssAt>> counted;
  double last_read_s = 0, next_left_s = std::numeric_limits<double>::infinity();
  for (const ProcessAccount* process : times.near(time_s))
    if (is_there(*process, time_s) && process->left_s && *process->left_s > time_s)
      next_left_s = std::min(next_left_s, *process->left_s);
  for (const ProcessAccount* process : times.near(time_s)) {
    if (!is_there(*process, time_s) || process->accounts.empty()) continue;  // never walked: as in rss_sum
    const PssAt& pss = counted.emplace_back(process, pss_at(times, *process, time_s, next_left_s)).second;
    last_read_s = std::max(last_read_s, pss.read_s);
  }
  std::vector<FilePss> parts;
  PssAt sum{.bytes = 0, .read_s = last_read_s, .estimate = false, .file_bytes = 0};
  for (const auto& [process, pss] : counted) {
    if (process->left_s && *process->left_s < last_read_s) continue;
    const auto bytes = cautious ? least_pss(*process, pss, time_s) : pss.bytes;
    if (!bytes) return {};
    *sum.bytes += *bytes;
    parts.push_back({process, std::min(pss.file_bytes, *bytes)});
    sum.file_bytes += parts.back().pss_bytes;
    sum.estimate |= pss.estimate;
  }
  *sum.bytes -= std::max<std::int64_t>(sum.file_bytes - times.files().most(parts, time_s), 0);
  return sum;
}

void add_unmapped(const ProcessTimes& times, Interval interval, FamilyView& family) {
  std::set<double> moments{interval.from_s, interval.to_s};
  for (const ProcessAccount& process : times.recording().processes)
    for (const UnmappedMemory& read : process.unmapped)
      if (read.time_s > interval.from_s && read.time_s < interval.to_s) moments.insert(read.time_s);
  for (const double time_s : moments) {
    const auto bytes = unmapped_at(times, time_s);
    if (bytes && (!family.unmapped.peak || *bytes > *family.unmapped.peak)) family.unmapped_peak_s = time_s;
    larger(family.unmapped.peak, bytes);
  }
  family.unmapped.first = unmapped_at(times, interval.from_s);
  family.unmapped.last = unmapped_at(times, interval.to_s);
}

FamilyView family_view(const ProcessTimes& times, Interval interval) {
  FamilyView family;
  add_unmapped(times, interval, family);
  std::set<double> moments{interval.from_s, interval.to_s};
  for (const ProcessAccount& process : times.recording().processes) {
    for (const Account& account : process.accounts) moments.insert(account.time_s);
    for (const KernelTotals& totals : process.totals) moments.insert(totals.time_s);
  }
  for (const double time_s : moments) {
    if (time_s < interval.from_s || time_s > interval.to_s) continue;
    family.rss_sum.peak = std::max(family.rss_sum.peak, family_rss(times, time_s));
    larger(family.pss, family_pss(times, time_s, true));
  }
  family.accounting = account_memory(times, interval);
  family.accounting.rss_sum = std::max(family.accounting.rss_sum, family.rss_sum.peak);
  family.rss_sum.first = family_rss(times, interval.from_s);
  family.rss_sum.last = family_rss(times, interval.to_s);
  const PssAt first = family_pss(times, interval.from_s), last = family_pss(times, interval.to_s);
  family.pss.first = first.bytes;
  family.pss.last = last.bytes;
  family.pss.ends_estimate = first.estimate || last.estimate;
  larger(family.pss, first);
  larger(family.pss, last);
  if (const auto& peak = family.accounting.peak) larger(family.pss, {peak->pss, peak->time_s, peak->estimate});
  if (family.pss.peak == 0) family.pss.peak.reset();  // no process was read: living processes have some
  return family;
}

}  // namespace

std::int64_t peak_rss_sum(const ProcessTimes& times, double from_s, double to_s) {
  std::int64_t peak = std::max(family_rss(times, from_s), family_rss(times, to_s));
  for (const ProcessAccount& process : times.recording().processes) {
    auto walk = std::ranges::lower_bound(process.accounts, from_s, {}, &Account::time_s);
    for (; walk != process.accounts.end() && walk->time_s <= to_s; ++walk)
      peak = std::max(peak, family_rss(times, walk->time_s));
  }
  return peak;
}

PssMoment pss_of_process(const ProcessTimes& times, const ProcessAccount& process, double time_s) {
  const PssAt pss = pss_at(times, process, time_s);
  return {pss.bytes, pss.estimate};
}

PssMoment pss_of_family(const ProcessTimes& times, double time_s) {
  const PssAt pss = family_pss(times, time_s);
  return {pss.bytes, pss.estimate};
}

View build_processes(const ProcessTimes& times, Interval interval, std::optional<int> only_pid) {
  const RecordingAccount& recording = times.recording();
  View view;
  view.recording = &recording;
  view.interval = interval;
  for (const ProcessAccount& process : recording.processes)
    if (!only_pid || process.pid == *only_pid)
      view.processes.push_back(process_view(times, process, interval_of(process, interval)));
  return view;
}

View build_processes(const RecordingAccount& recording, Interval interval, std::optional<int> only_pid) {
  return build_processes(ProcessTimes(recording), interval, only_pid);
}

ProcessView build_with_peak(const RecordingAccount& recording, const ProcessAccount& process, Interval interval,
                            double peak_s) {
  return process_view(ProcessTimes(recording), process, interval, peak_s);
}

View build_view(const RecordingAccount& recording, Interval interval, std::optional<int> only_pid) {
  const ProcessTimes times(recording);
  View view = build_processes(times, interval, only_pid);
  for (ProcessView& process : view.processes)
    process.final_frees = final_frees_of(view, process, [&](double to_s) {
      const Interval before{
          .from_s = interval.from_s, .to_s = to_s, .from_phase = interval.from_phase, .from_pid = interval.from_pid};
      return build_processes(times, before, process.account->pid);
    });
  view.family = family_view(times, interval_of_all(recording, interval));
  return view;
}

}  // namespace whyrss
