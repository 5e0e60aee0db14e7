#include "report/memory_accounting.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "report/format.h"
#include "report/verdict_thresholds.h"

namespace whyrss {
namespace {

// One process's figures from a moment on.
struct Change {
  double time_s = 0;
  std::size_t process = 0;
  RssPoint point;
};

// A family is read one process after another.
constexpr double kSameMomentS = 2;

struct Sums {
  std::int64_t rss = 0, pss = 0;
};

// Both of all processes at one moment, from the same readings; nothing where one of them was not read.
std::optional<Sums> sums_at(const RecordingAccount& recording, double time_s) {
  Sums sums;
  for (const ProcessAccount& process : recording.processes) {
    const bool alive = process.born_s <= time_s && process.ended_s.value_or(time_s) >= time_s;
    if (!alive || process.accounts.empty()) continue;
    const auto after = std::ranges::upper_bound(process.totals, time_s + kSameMomentS, {}, &KernelTotals::time_s);
    if (after == process.totals.begin()) return std::nullopt;
    const KernelTotals& read = *std::prev(after);
    if (read.time_s < time_s - kSameMomentS || !read.rss_bytes || !read.pss_bytes) return std::nullopt;
    sums.rss += *read.rss_bytes;
    sums.pss += *read.pss_bytes;
  }
  return sums;
}

// Where they differ most.
Sums widest_sums(const View& view) {
  Sums widest;
  for (const ProcessAccount& process : view.recording->processes)
    for (const KernelTotals& read : process.totals) {
      if (read.time_s < view.interval.from_s || read.time_s > view.interval.to_s) continue;
      const auto sums = sums_at(*view.recording, read.time_s);
      if (sums && sums->rss - sums->pss > widest.rss - widest.pss) widest = *sums;
    }
  return widest;
}

}  // namespace

AccountingView account_memory(const RecordingAccount& recording, Interval interval) {
  std::vector<Change> changes;
  for (std::size_t i = 0; i < recording.processes.size(); ++i) {
    const ProcessAccount& process = recording.processes[i];
    for (const RssPoint& poll : process.polls)
      if (poll.time_s <= interval.to_s && (!process.ended_s || poll.time_s < *process.ended_s))
        changes.push_back({poll.time_s, i, poll});
    if (process.ended_s && *process.ended_s <= interval.to_s) changes.push_back({*process.ended_s, i, {}});
  }
  std::ranges::stable_sort(changes, {}, &Change::time_s);
  std::vector<RssPoint> now(recording.processes.size());
  std::int64_t rss = 0, shared = 0;
  AccountingView most;
  const auto see = [&] {
    most.rss_sum = std::max(most.rss_sum, rss);
    most.rss_less_shared = std::max(most.rss_less_shared, rss - shared);
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    rss += change.point.rss_bytes - now[change.process].rss_bytes;
    shared += change.point.shared_bytes - now[change.process].shared_bytes;
    now[change.process] = change.point;
    // What was in force when the interval began counts.
    const bool last_before = i + 1 == changes.size() || changes[i + 1].time_s > interval.from_s;
    if (change.time_s > interval.from_s || last_before) see();
  }
  return most;
}

void rss_double_counted(const View& view, std::vector<Verdict>& verdicts) {
  const AccountingView& accounting = view.family.accounting;
  if (view.recording->processes.size() < 2) return;
  const auto [rss, pss] = widest_sums(view);
  if (rss - pss < kDoubleCountedBytes || static_cast<double>(rss) < kDoubleCountedRatio * static_cast<double>(pss))
    return;
  Verdict verdict{.id = "rss-double-counted", .severity = Severity::info, .bytes = rss - pss};
  verdict.headline =
      fmt::format("RSS summed over the processes ({}) counts shared memory several times: together they have {} (PSS)",
                  size_text(rss), size_text(pss));
  verdict.why = fmt::format(
      "A page that several processes map counts in the RSS of each. At their peaks Slurm's jobacct_gather would say {} "
      "by default, {} with UsePss, and {} with NoShared, which leaves out files and shared memory but not what a fork "
      "shares.",
      size_text(accounting.rss_sum), size_text(view.family.pss.peak.value_or(pss)),
      size_text(accounting.rss_less_shared));
  verdict.advice =
      "Nothing to fix in the program. Have the limit count PSS (JobAcctGatherParams=UsePss) or a memory cgroup "
      "(task/cgroup with ConstrainRAMSpace=yes), and compare PSS when you compare runs.";
  verdict.evidence["rss_sum_bytes"] = rss;
  verdict.evidence["pss_sum_bytes"] = pss;
  verdict.evidence["rss_less_shared_bytes"] = accounting.rss_less_shared;
  verdicts.push_back(std::move(verdict));
}

}  // namespace whyrss
