#include "report/view/process_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace whyrss {
namespace {

constexpr std::size_t kStretches = 512;  // each names those that are there all the time once more

// As the kernel says, or its first walk, which may seem to be before that: the kernel rounds.
double earliest_s(const ProcessAccount& process) {
  return process.accounts.empty() ? process.born_s : std::min(process.born_s, process.accounts.front().time_s);
}

double latest_s(const ProcessAccount& process) {
  if (!process.ended_s) return std::numeric_limits<double>::infinity();
  const double walked_s = process.accounts.empty() ? 0 : process.accounts.back().time_s;
  return std::max({*process.ended_s, walked_s, there_until(process).value_or(0)});
}

}  // namespace

ProcessTimes::ProcessTimes(const RecordingAccount& recording) : recording_(&recording), files_(recording) {
  double most_s = 0;
  for (const ProcessAccount& process : recording.processes) {
    most_s = std::max(most_s, earliest_s(process));
    if (const double last_s = latest_s(process); std::isfinite(last_s)) most_s = std::max(most_s, last_s);
    if (const auto left_s = process.left_s ? process.left_s : process.ended_s) leaving_.emplace_back(*left_s, &process);
    if (process.parent && !process.accounts.empty()) children_[*process.parent].push_back({&process, 0});
  }
  if (most_s > 0) stretch_s_ = most_s / static_cast<double>(kStretches);
  stretches_.resize(kStretches + 1);
  for (const ProcessAccount& process : recording.processes)
    for (std::size_t i = stretch_of(earliest_s(process)); i <= stretch_of(latest_s(process)); ++i)
      stretches_[i].push_back(&process);
  std::ranges::sort(leaving_);
  for (auto& [pid, all] : children_) {
    std::ranges::stable_sort(all, {}, [](const Child& child) { return child.process->born_s; });
    double latest_walk_s = -std::numeric_limits<double>::infinity();
    for (Child& child : all)
      child.latest_walk_s = latest_walk_s = std::max(latest_walk_s, child.process->accounts.front().time_s);
  }
  collect_copies();
}

void ProcessTimes::Copies::add(const Copies& more) { sums.insert(sums.end(), more.sums.begin(), more.sums.end()); }

void ProcessTimes::Copies::sum_up() {
  std::ranges::sort(sums);
  std::int64_t sum = 0;
  for (auto& [time_s, bytes] : sums) bytes = sum += bytes;
}

std::int64_t ProcessTimes::Copies::between(double from_s, double to_s) const {
  const auto until = [this](double time_s) {
    const auto after = std::ranges::upper_bound(sums, time_s, {}, &std::pair<double, std::int64_t>::first);
    return after == sums.begin() ? 0 : std::prev(after)->second;
  };
  return until(to_s) - until(from_s);
}

// What was inherited becomes less from account to account, estimates included; of who inherited nothing walks tell.
ProcessTimes::Copies ProcessTimes::copies_of(const ProcessAccount& process) {
  Copies copies;
  std::optional<std::int64_t> before;
  bool inherited = false;
  for (const Account& account : process.accounts) {
    const std::int64_t shared = account.slices.sum_of(Cause::fork_shared).bytes;
    inherited |= shared > 0;
    if (before && *before != shared) copies.sums.emplace_back(account.time_s, *before - shared);
    before = shared;
  }
  if (inherited) return copies;
  for (const SharingChange& change : process.sharing)
    if (change.copied_bytes != 0) copies.sums.emplace_back(change.time_s, change.copied_bytes);
  return copies;
}

void ProcessTimes::collect_copies() {
  for (const ProcessAccount& process : recording_->processes) {
    const Copies copies = copies_of(process);
    if (copies.sums.empty()) continue;
    copies_[process.pid].add(copies);
    if (process.parent) copies_of_children_[*process.parent].add(copies);
  }
  for (auto* all : {&copies_, &copies_of_children_})
    for (auto& [pid, copies] : *all) copies.sum_up();
}

std::int64_t ProcessTimes::copied_by(const std::unordered_map<int, Copies>& all, int pid, double from_s, double to_s) {
  const auto found = all.find(pid);
  return found == all.end() ? 0 : found->second.between(from_s, to_s);
}

std::int64_t ProcessTimes::copied_by_relatives(const ProcessAccount& process, double from_s, double to_s) const {
  std::int64_t bytes = copied_by(copies_of_children_, process.pid, from_s, to_s);
  if (process.parent)
    bytes += copied_by(copies_, *process.parent, from_s, to_s) +
             copied_by(copies_of_children_, *process.parent, from_s, to_s) -
             copied_by(copies_, process.pid, from_s, to_s);
  return bytes;
}

std::size_t ProcessTimes::stretch_of(double time_s) const {
  const double at = std::floor(std::max(time_s, 0.0) / stretch_s_);
  return at >= static_cast<double>(kStretches) ? kStretches : static_cast<std::size_t>(at);
}

std::span<const ProcessAccount* const> ProcessTimes::near(double time_s) const {
  return stretches_[stretch_of(time_s)];
}

bool ProcessTimes::others_left(const ProcessAccount& process, double from_s, double to_s) const {
  using Leaving = std::pair<double, const ProcessAccount*>;
  auto one = std::ranges::lower_bound(leaving_, from_s, {}, &Leaving::first);
  for (; one != leaving_.end() && one->first < to_s; ++one)
    if (one->second != &process) return true;
  return false;
}

std::size_t ProcessTimes::born_until(const std::vector<Child>& all, double time_s) {
  const auto after =
      std::ranges::upper_bound(all, time_s, {}, [](const Child& child) { return child.process->born_s; });
  return static_cast<std::size_t>(after - all.begin());
}

std::optional<double> there_until(const ProcessAccount& process) {
  if (!process.ended_s) return std::nullopt;
  // A last walk may come a moment after what the process's own events call its end.
  const double walked_s = process.accounts.empty() ? 0 : process.accounts.back().time_s;
  if (!process.left_s) return std::max(*process.ended_s, walked_s);
  const double polled_s = process.polls.empty() ? 0 : process.polls.back().time_s;
  return std::max({*process.left_s, walked_s, polled_s});
}

bool is_there(const ProcessAccount& process, double time_s) {
  return process.born_s <= time_s && there_until(process).value_or(time_s) >= time_s;
}

}  // namespace whyrss
