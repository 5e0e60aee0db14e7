#include "report/view/memory_accounting.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "report/view/file_pss.h"
#include "report/view/memory_figures.h"
#include "report/view/series.h"

namespace whyrss {
namespace {

// One process's figures from a moment on.
struct Change {
  double time_s = 0;
  std::size_t process = 0;
  RssPoint point;
};

// Shells and helpers below this are not read one by one.
constexpr std::int64_t kLeftOutBytes = 8LL * 1024 * 1024;

// Adds a figure that may be missing for one process: then the sum is not known.
void add(std::optional<std::int64_t>& sum, const std::optional<std::int64_t>& value) {
  sum = sum && value ? std::optional(*sum + *value) : std::nullopt;
}

// A process that has had its last walk is not counted: soon what it shares counts in its relatives' PSS.
bool counts_at(const ProcessAccount& process, double time_s) {
  return !process.accounts.empty() && process.born_s <= time_s && process.ended_s.value_or(time_s) >= time_s &&
         process.left_s.value_or(time_s) >= time_s;
}

// Pages of files that were counted more than once, as each process was read at another time, are taken off all.
void count_files_once(const FilePssBound& bound, const std::vector<FilePss>& files, AccountingMoment& moment) {
  if (!moment.pss || !moment.pss_file || !moment.pss_shmem) return;
  const std::int64_t counted = *moment.pss_file + *moment.pss_shmem;
  const std::int64_t most = bound.most(files, moment.time_s);
  if (counted <= most) return;
  const double kept = static_cast<double>(most) / static_cast<double>(counted);
  moment.pss = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    AccountingEntry& entry = moment.processes[i];
    *entry.pss -= std::llround(static_cast<double>(files[i].pss_bytes) * (1 - kept));
    if (entry.uss) entry.uss = std::min(*entry.uss, *entry.pss);
    entry.estimate = true;
    *moment.pss += *entry.pss;
  }
  moment.pss_file = std::llround(static_cast<double>(*moment.pss_file) * kept);
  moment.pss_shmem = *moment.pss - *moment.pss_file - moment.pss_anonymous.value_or(0);
  moment.estimate = true;
}

// All processes at one moment; nothing where PSS of one of them was never read.
std::optional<AccountingMoment> moment_at(const ProcessTimes& times, double time_s, bool same_state) {
  AccountingMoment moment{
      .time_s = time_s, .processes = {}, .uss = 0, .pss = 0, .pss_anonymous = 0, .pss_file = 0, .pss_shmem = 0};
  std::vector<FilePss> files;
  for (const ProcessAccount* one : times.near(time_s)) {
    const ProcessAccount& process = *one;
    if (!counts_at(process, time_s)) continue;
    const auto figures = figures_at(times, process, time_s, same_state);
    if (!figures) {
      if (process.high_water_bytes > kLeftOutBytes) return std::nullopt;
      ++moment.left_out;
      continue;
    }
    const KernelTotals& read = figures->totals;
    moment.spread_s = std::max(moment.spread_s, std::abs(read.time_s - time_s));
    moment.estimate |= figures->estimate;
    const std::int64_t rss = *read.rss_bytes;
    const RssPoint* poll = last_at(process.polls, time_s);
    const std::int64_t polled = poll == nullptr ? 0 : std::min(poll->shared_bytes, rss);
    const std::int64_t shared = read.anonymous_bytes ? rss - std::min(*read.anonymous_bytes, rss) : polled;
    moment.processes.push_back({.pid = process.pid,
                                .estimate = figures->estimate,
                                .rss = rss,
                                .shared = shared,
                                .uss = read.uss_bytes,
                                .pss = read.pss_bytes});
    files.push_back({&process, read.pss_file_bytes.value_or(0) + read.pss_shmem_bytes.value_or(0)});
    moment.rss += rss;
    moment.shared += shared;
    add(moment.uss, read.uss_bytes);
    add(moment.pss, read.pss_bytes);
    add(moment.pss_anonymous, read.pss_anonymous_bytes);
    add(moment.pss_file, read.pss_file_bytes);
    add(moment.pss_shmem, read.pss_shmem_bytes);
  }
  if (moment.processes.empty()) return std::nullopt;
  moment.unmapped = unmapped_at(times, time_s);
  count_files_once(times.files(), files, moment);
  return moment;
}

// RSS by polls, of all processes that count at that time.
std::int64_t rss_sum_at(const ProcessTimes& times, double time_s) {
  std::int64_t sum = 0;
  for (const ProcessAccount* process : times.near(time_s))
    if (counts_at(*process, time_s)) sum += rss_at(*process, time_s).value_or(0);
  return sum;
}

// When a process was walked or read.
std::set<double> moments_in(const RecordingAccount& recording, Interval interval) {
  std::set<double> moments;
  const auto add_moment = [&](double time_s) {
    if (time_s >= interval.from_s && time_s <= interval.to_s) moments.insert(time_s);
  };
  for (const ProcessAccount& process : recording.processes) {
    for (const Account& walk : process.accounts) add_moment(walk.time_s);
    for (const KernelTotals& read : process.totals)
      if (read.pss_bytes) add_moment(read.time_s);
  }
  return moments;
}

// Of those with so much RSS the one that is `better(it, best so far)`. Where there is none of the state between two
// ends of processes, what comes nearest to that.
template <typename Better>
std::optional<AccountingMoment> best_moment(const ProcessTimes& times, const std::set<double>& moments,
                                            std::int64_t least_rss, Better better) {
  std::optional<AccountingMoment> best;
  for (const bool same_state : {true, false}) {
    for (const double time_s : moments) {
      auto moment = moment_at(times, time_s, same_state);
      if (!moment || moment->rss < least_rss) continue;
      if (!best || better(*moment, *best)) best = std::move(moment);
    }
    if (best) return best;
  }
  return best;
}

// When RSS summed was largest, by `most_s` or at a walk. Of like moments the one with noticeably more PSS counts, as
// copies move no RSS: an estimate too, since the last reading may have been of the way up. Else one that was read
// counts before an estimate; of two that were read the one with 1 % more PSS, by which readings of a resting process do
// not differ, or else the one whose readings lie closest together: while processes leave one after the other, each PSS
// is read a little larger than the one before.
std::optional<AccountingMoment> fullest_moment(const ProcessTimes& times, Interval interval,
                                               std::optional<double> most_s) {
  constexpr double kLikeShare = 0.98;
  constexpr double kReadAlikeShare = 0.99;
  std::set<double> moments = moments_in(times.recording(), interval);
  if (most_s && !times.recording().processes.empty()) moments.insert(*most_s);
  std::map<double, std::int64_t> sums;
  std::int64_t most = 0;
  for (const double time_s : moments) most = std::max(most, sums[time_s] = rss_sum_at(times, time_s));
  const auto like = static_cast<std::int64_t>(kLikeShare * static_cast<double>(most));
  std::erase_if(moments, [&](double time_s) { return sums.at(time_s) < like; });
  const auto is_better = [](const AccountingMoment& moment, const AccountingMoment& best) {
    if (!is_like(*moment.pss, *best.pss)) return *moment.pss > *best.pss;
    if (moment.estimate != best.estimate) return best.estimate;
    const auto [less, more] = std::minmax(*moment.pss, *best.pss);
    if (!moment.estimate && static_cast<double>(less) < kReadAlikeShare * static_cast<double>(more))
      return more == *moment.pss;
    return moment.spread_s < best.spread_s;
  };
  // What was read right after a poll may be smaller already.
  auto fullest = best_moment(times, moments, like, is_better);
  return fullest ? fullest : best_moment(times, moments, 0, is_better);
}

}  // namespace

AccountingView account_memory(const ProcessTimes& times, Interval interval) {
  const RecordingAccount& recording = times.recording();
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
  std::optional<double> most_s;
  const auto see = [&](double time_s) {
    if (rss > most.rss_sum) most_s = time_s;
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
    if (change.time_s > interval.from_s || last_before) see(std::max(change.time_s, interval.from_s));
  }
  most.peak = fullest_moment(times, interval, most_s);
  if (most.peak) {
    most.rss_sum = std::max(most.rss_sum, most.peak->rss);
    most.rss_less_shared = std::max(most.rss_less_shared, most.peak->rss - most.peak->shared);
  }
  return most;
}

std::optional<double> memory_percent(const View& view, std::int64_t rss_bytes) {
  const auto& total = view.recording->info.memory_total_bytes;
  return total ? std::optional(100 * static_cast<double>(rss_bytes) / static_cast<double>(*total)) : std::nullopt;
}

}  // namespace whyrss
