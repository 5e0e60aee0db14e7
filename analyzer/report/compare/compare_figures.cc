// What one recording says about its run, for a comparison of allocators.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "model/library_allocator.h"
#include "report/compare/compare.h"
#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/view/memory_figures.h"
#include "report/view/series.h"

namespace whyrss {
namespace {

using PerCause = std::array<std::int64_t, kCauseCount>;

// Not the program's, or counted with a relative already.
bool is_left_out(Cause cause) { return cause == Cause::whyrss || cause == Cause::fork_shared; }

std::int64_t left_out_bytes(const Account* account) {
  std::int64_t sum = 0;
  if (account == nullptr) return sum;
  for (const Slice& slice : account->slices)
    if (is_left_out(slice.site.cause)) sum += slice.bytes;
  return sum;
}

std::int64_t own_rss(const Account& account) { return account.rss_bytes - left_out_bytes(&account); }

std::int64_t exclusive_rss(const Account& account) {
  std::int64_t sum = 0;
  for (const Slice& slice : account.slices)
    if (!is_left_out(slice.site.cause)) sum += slice.exclusive_bytes;
  return sum;
}

std::int64_t own_peak(const ProcessAccount& process) {
  std::int64_t peak = 0;
  for (const Account& account : process.accounts) peak = std::max(peak, own_rss(account));
  return peak;
}

// The process that the comparison is about: a shell that starts it ends with next to nothing, and a forked worker
// that copies what it inherited may have more for a while.
const ProcessAccount* largest_process(const RecordingAccount& recording) {
  const ProcessAccount* largest = nullptr;
  const auto is_larger = [](const ProcessAccount& process, const ProcessAccount& other) {
    if (process.born_by_fork != other.born_by_fork) return other.born_by_fork;
    return own_peak(process) > own_peak(other);
  };
  for (const ProcessAccount& process : recording.processes)
    if (!process.accounts.empty() && (largest == nullptr || is_larger(process, *largest))) largest = &process;
  return largest;
}

// The walks that tell the state of all processes at a time.
std::vector<const Account*> states_at(const RecordingAccount& recording, double time_s) {
  std::vector<const Account*> states;
  for (const ProcessAccount& process : recording.processes) {
    const Account* account = is_there(process, time_s) ? last_at(process.accounts, time_s) : nullptr;
    if (account != nullptr) states.push_back(account);
  }
  return states;
}

PerCause causes_of(const std::vector<const Account*>& states) {
  PerCause sums{};
  for (const Account* account : states)
    for (const Slice& slice : account->slices) sums.at(static_cast<std::size_t>(slice.site.cause)) += slice.bytes;
  return sums;
}

// What several processes map counts with the largest of them alone, not again in each.
std::int64_t rss_of(const std::vector<const Account*>& states) {
  std::int64_t sum = 0, most_shared = 0;
  for (const Account* account : states) {
    sum += exclusive_rss(*account);
    most_shared = std::max(most_shared, own_rss(*account) - exclusive_rss(*account));
  }
  return sum + most_shared;
}

HeapParts parts_of(const PerCause& causes) {
  const auto bytes = [&](Cause cause) { return causes.at(static_cast<std::size_t>(cause)); };
  return {.live = bytes(Cause::heap_live),
          .slack = bytes(Cause::heap_slack),
          .retained = bytes(Cause::heap_retained),
          .metadata = bytes(Cause::heap_metadata),
          .unsplit = bytes(Cause::heap_unsplit)};
}

// Known where functions have names.
std::int64_t library_retained(const StackTable& stacks, const std::vector<const Account*>& states) {
  std::int64_t sum = 0;
  for (const Account* account : states)
    for (const Slice& slice : account->slices)
      if (slice.site.cause == Cause::heap_retained && allocator_that_served(stacks, slice.site.stack))
        sum += slice.bytes;
  return sum;
}

std::int64_t kept(const HeapParts& parts) { return parts.slack + parts.retained; }

// An allocator that gives nothing back stays at its peak to the end. Of all moments when RSS is as good as highest, the
// one with the most live bytes tells what the peak was for.
constexpr double kAsHigh = 0.95;

struct Moments {
  double peak_s = 0, end_s = 0;
  std::int64_t peak_rss_bytes = 0;
};

Moments moments_of(const RecordingAccount& recording, const ProcessAccount& largest) {
  Moments moments{.peak_s = 0, .end_s = largest.accounts.back().time_s, .peak_rss_bytes = 0};
  std::set<double> walks;
  for (const ProcessAccount& process : recording.processes)
    for (const Account& account : process.accounts) walks.insert(account.time_s);
  std::map<double, std::int64_t> rss;
  std::int64_t& peak = moments.peak_rss_bytes;
  std::int64_t most_live = -1;
  for (const double time_s : walks) {
    rss[time_s] = rss_of(states_at(recording, time_s));
    peak = std::max(peak, rss[time_s]);
  }
  for (const auto& [time_s, bytes] : rss) {
    if (static_cast<double>(bytes) < kAsHigh * static_cast<double>(peak)) continue;
    const std::int64_t live = parts_of(causes_of(states_at(recording, time_s))).live;
    if (live <= most_live) continue;
    most_live = live;
    moments.peak_s = time_s;
  }
  return moments;
}

// Under the curve of its memory, from each reading to the next. Of all processes but the largest the walks alone tell
// what is theirs.
double byte_seconds(const ProcessAccount& process, bool is_largest, double last_s) {
  std::map<double, std::int64_t> curve;
  if (is_largest)
    for (const RssPoint& poll : process.polls)
      curve[poll.time_s] =
          std::max<std::int64_t>(0, poll.rss_bytes - left_out_bytes(last_at(process.accounts, poll.time_s)));
  for (const Account& account : process.accounts)
    curve[account.time_s] = is_largest ? own_rss(account) : exclusive_rss(account);
  double sum = 0;
  const double end_s = process.ended_s.value_or(last_s);
  for (auto point = curve.begin(); point != curve.end(); ++point) {
    const auto next = std::next(point);
    const double until_s = next == curve.end() ? end_s : std::min(next->first, end_s);
    sum += static_cast<double>(point->second) * std::max(0.0, until_s - point->first);
  }
  return sum;
}

RunEnd end_of(const RecordingInfo& info) {
  if (info.exit_signal) return "killed by " + *info.exit_signal;
  if (info.exit_code.value_or(0) != 0) return "exit status " + std::to_string(*info.exit_code);
  return "";
}

}  // namespace

RecordedRun recorded_run(const RecordingAccount& recording) {
  RecordedRun run;
  run.end = end_of(recording.info);
  const ProcessAccount* largest = largest_process(recording);
  if (largest == nullptr) return run;
  const Moments moments = moments_of(recording, *largest);
  const std::vector<const Account*> peak = states_at(recording, moments.peak_s);
  const std::vector<const Account*> end = states_at(recording, moments.end_s);
  run.peak_rss_bytes = moments.peak_rss_bytes;
  run.final_rss_bytes = rss_of(end);
  run.at_peak = parts_of(causes_of(peak));
  run.at_end = parts_of(causes_of(end));
  run.at_peak.library_retained = library_retained(recording.stacks, peak);
  run.at_end.library_retained = library_retained(recording.stacks, end);
  const Account* at_peak = last_at(largest->accounts, moments.peak_s);
  const bool counted = at_peak != nullptr && at_peak->has_liveness && largest->accounts.back().has_liveness;
  run.has_parts = counted || kept(run.at_peak) > 0 || kept(run.at_end) > 0;
  for (const ProcessAccount& process : recording.processes)
    run.rss_byte_seconds += byte_seconds(process, &process == largest, recording.info.duration_s);
  run.allocator = largest->allocator;
  return run;
}

LibraryMemory library_memory(const RecordingAccount& recording) {
  constexpr std::int64_t kLittleBytes = 8L << 20;
  const StackTable& stacks = recording.stacks;
  std::map<std::pair<bool, std::string_view>, std::int64_t> most;  // by whether it is Arrow's, and kind
  for (const ProcessAccount& process : recording.processes)
    for (const Account& account : process.accounts) {
      std::map<std::pair<bool, std::string_view>, std::int64_t> here;
      for (const Slice& slice : account.slices) {
        const auto allocator = allocator_of(stacks, slice.site.cause, slice.site.stack);
        if (!allocator) continue;
        const bool arrow = base_name(stacks[allocator->library].path).starts_with("libarrow.so");
        here[{arrow, allocator->kind}] += slice.bytes;
      }
      for (const auto& [key, bytes] : here) most[key] = std::max(most[key], bytes);
    }
  const auto largest = std::ranges::max_element(most, {}, [](const auto& entry) { return entry.second; });
  if (largest == most.end() || largest->second < kLittleBytes) return LibraryMemory::little;
  const auto& [arrow, kind] = largest->first;
  if (arrow && kind == "mimalloc") return LibraryMemory::arrow_mimalloc;
  return arrow && kind == "jemalloc" ? LibraryMemory::arrow_jemalloc : LibraryMemory::other;
}

std::vector<PinningLine> pinning_lines(const RecordingAccount& recording, bool at_end, std::size_t top) {
  const ProcessAccount* largest = largest_process(recording);
  if (largest == nullptr) return {};
  const Moments moments = moments_of(recording, *largest);
  struct Sum {
    std::int64_t bytes = 0;
    double variance = 0;
  };
  std::map<std::pair<Cause, std::string>, Sum> sums;
  for (const Account* account : states_at(recording, at_end ? moments.end_s : moments.peak_s))
    for (const Slice& slice : account->slices) {
      if (slice.site.cause != Cause::heap_slack && slice.site.cause != Cause::heap_retained) continue;
      Sum& sum = sums[{slice.site.cause, blamed_line(recording.stacks, slice.site.stack)}];
      sum.bytes += slice.bytes;
      sum.variance += slice.variance;
    }
  std::vector<PinningLine> lines;
  for (const auto& [key, sum] : sums)
    if (is_significant(sum.bytes, sum.variance)) lines.push_back({key.first, sum.bytes, key.second});
  std::stable_sort(lines.begin(), lines.end(),
                   [](const PinningLine& a, const PinningLine& b) { return a.bytes > b.bytes; });
  if (lines.size() > top) lines.resize(top);
  return lines;
}

std::optional<TrimEffect> trim_effect(const RecordingAccount& recording, const std::string& mark_name) {
  const ProcessAccount* process = largest_process(recording);
  if (process == nullptr) return std::nullopt;
  const Account& after = process->accounts.back();
  const Account* before = nullptr;
  for (const Mark& mark : recording.marks)
    if (mark.name == mark_name && mark.at_s < after.time_s) before = last_at(process->accounts, mark.at_s);
  if (before == nullptr) return std::nullopt;
  return TrimEffect{.retained_before = parts_of(causes_of({before})).retained,
                    .retained_after = parts_of(causes_of({&after})).retained,
                    .rss_before = own_rss(*before),
                    .rss_after = own_rss(after)};
}

}  // namespace whyrss
