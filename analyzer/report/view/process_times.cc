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
