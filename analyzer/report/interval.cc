#include "report/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace whyrss {
namespace {

// A look at all processes takes some milliseconds, and the collector has to wait for a core.
constexpr double kLookNearEdgeS = 0.25;

// As typed; a phase of that name comes first.
constexpr std::string_view kTeardown = "teardown";
// A process that has asked for a look and waits for others may wait so long; if it grows meanwhile, it is looked at
// again.
constexpr double kSnapshotBeforeS = 10;

std::optional<double> parse_seconds(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string phase_names(const RecordingAccount& recording) {
  std::string names;
  for (const Phase& phase : recording.phases) names += (names.empty() ? "" : ", ") + phase.name;
  return names.empty() ? "the recording has no phases" : "its phases: " + names;
}

// Whether the program asks for looks itself: whyrss_snapshot() also has the allocator's counters read.
bool takes_snapshots(const ProcessAccount& process, double edge_s) {
  return std::ranges::any_of(process.allocator_stats, [&](const AllocatorStats& read) {
    return read.moment == "snapshot" && read.time_s <= edge_s && read.time_s > edge_s - kSnapshotBeforeS;
  });
}

// The time of the walk nearest to the edge of a phase, if that came after it: the edge itself asked for it. What
// the program asked for itself before the edge is what it wants to begin or to end with.
double looked_at(const ProcessAccount& process, double edge_s) {
  if (process.born_s > edge_s) return edge_s;
  const auto after = std::ranges::upper_bound(process.accounts, edge_s, {}, &Account::time_s);
  if (after == process.accounts.end() || after->time_s > edge_s + kLookNearEdgeS) return edge_s;
  if (after == process.accounts.begin()) return after->time_s;
  const bool nearer = after->time_s - edge_s < edge_s - std::prev(after)->time_s;
  return nearer && !takes_snapshots(process, edge_s) ? after->time_s : edge_s;
}

struct Edge {
  double time_s = 0;
  bool of_phase = false, of_teardown = false;
};

double end_of(const RecordingAccount& recording, const ProcessAccount& process) {
  const double end_s = process.ended_s.value_or(recording.info.duration_s);
  return process.accounts.empty() ? end_s : std::max(end_s, process.accounts.back().time_s);
}

// Of any process.
double last_end(const RecordingAccount& recording) {
  double end_s = recording.processes.empty() ? recording.info.duration_s : 0;
  for (const ProcessAccount& process : recording.processes) end_s = std::max(end_s, end_of(recording, process));
  return end_s;
}

// Of the main process, else of the first that has one.
std::optional<double> first_teardown(const RecordingAccount& recording) {
  const auto has_one = [](const ProcessAccount& process) { return process.teardown_s.has_value(); };
  const auto found = std::ranges::find_if(recording.processes, has_one);
  return found == recording.processes.end() ? std::nullopt : found->teardown_s;
}

Result<Edge> parse_time(const RecordingAccount& recording, const char* option, const std::string& text) {
  const bool begin = std::string(option) == "--from";
  std::optional<double> time_s;
  for (const Phase& phase : recording.phases) {
    if (phase.name != text) continue;
    if (!time_s) time_s = begin ? phase.from_s : phase.to_s;
    time_s = begin ? std::min(*time_s, phase.from_s) : std::max(*time_s, phase.to_s);
  }
  if (time_s) return Edge{*time_s, true};
  if (text == kTeardown) {
    const auto begin_s = first_teardown(recording);
    if (!begin_s) return Error{fmt::format("{} {}: no process told that it takes itself down", option, text)};
    return Edge{begin ? *begin_s : whole_life(recording).to_s, false, true};
  }
  time_s = parse_seconds(text);
  if (!time_s)
    return Error{
        fmt::format("{} {}: neither seconds nor a phase nor \"teardown\" ({})", option, text, phase_names(recording))};
  return Edge{*time_s, false};
}

}  // namespace

Interval whole_life(const RecordingAccount& recording) {
  Interval interval{.to_teardown = true};
  for (const ProcessAccount& process : recording.processes)
    interval.to_s = std::max(interval.to_s, end_of_work(recording, process));
  if (recording.processes.empty()) interval.to_s = recording.info.duration_s;
  return interval;
}

double end_of_work(const RecordingAccount& recording, const ProcessAccount& process) {
  return process.teardown_s ? *process.teardown_s : end_of(recording, process);
}

Interval interval_of(const ProcessAccount& process, Interval interval) {
  if (interval.from_phase) interval.from_s = looked_at(process, interval.from_s);
  if (interval.to_phase) interval.to_s = looked_at(process, interval.to_s);
  if (interval.from_teardown) interval.from_s = process.teardown_s.value_or(interval.to_s);
  if (interval.to_teardown && process.teardown_s) interval.to_s = std::min(interval.to_s, *process.teardown_s);
  interval.from_s = std::min(interval.from_s, interval.to_s);
  return interval;
}

Result<Interval> parse_interval(const RecordingAccount& recording, const std::string& from, const std::string& to) {
  Interval interval = whole_life(recording);
  if (!from.empty()) {
    const Result<Edge> edge = parse_time(recording, "--from", from);
    if (!edge) return Error{edge.error()};
    interval.from_s = std::max(0.0, edge->time_s);
    interval.from_phase = edge->of_phase;
    interval.from_teardown = edge->of_teardown;
    if (edge->of_teardown || interval.from_s > interval.to_s) {  // else it would be empty
      interval.to_s = last_end(recording);
      interval.to_teardown = false;
    }
  }
  if (!to.empty()) {
    const Result<Edge> edge = parse_time(recording, "--to", to);
    if (!edge) return Error{edge.error()};
    interval.to_s = std::min(last_end(recording), edge->time_s);
    interval.to_phase = edge->of_phase;
    interval.to_teardown = edge->of_phase || edge->of_teardown;
  }
  if (interval.from_s > interval.to_s)
    return Error{fmt::format("the interval from {:.3f} s to {:.3f} s is empty (the recording lasts {:.3f} s)",
                             interval.from_s, interval.to_s, last_end(recording))};
  return interval;
}

}  // namespace whyrss
