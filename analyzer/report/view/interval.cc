#include "report/view/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "report/view/process_times.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// A walk of all processes takes some milliseconds, and the collector has to wait for a core.
constexpr double kWalkNearEdgeS = 0.25;

// The kernel says in hundredths of a second when a process began, rounded down.
constexpr double kBornTickS = 0.01;

// As typed; a phase of that name comes first, then a mark.
constexpr std::string_view kTeardown = "teardown";
// A process that has asked for a walk and waits for others may wait so long; if it grows meanwhile, it is walked
// again.
constexpr double kSnapshotBeforeS = 10;

constexpr std::size_t kMostNames = 20;

std::optional<double> parse_seconds(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "phases: load, train; marks: warm", each name once, at most kMostNames of each.
template <typename Named>
std::string names_of(const char* what, const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& one : all)
    if (std::ranges::count(names, one.name) == 0) names.push_back(one.name);
  if (names.empty()) return fmt::format("no {}", what);
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    list += (i == 0 ? "" : ", ") + names[i];
    const auto count = std::ranges::count(all, names[i], &Named::name);
    if (count > 1) list += fmt::format(" ({0}#1 to {0}#{1})", names[i], count);
  }
  if (names.size() > kMostNames) list += fmt::format(" and {} more", names.size() - kMostNames);
  return fmt::format("{}: {}", what, list);
}

std::string names_in(const RecordingAccount& recording) {
  return fmt::format("the recording has {}; {}", names_of("phases", recording.phases),
                     names_of("marks", recording.marks));
}

// All of that name; of "train#2" the second one of the name "train".
template <typename Named>
std::vector<const Named*> all_named(const std::vector<Named>& all, const std::string& text) {
  const auto of_name = [&](std::string_view name) {
    std::vector<const Named*> found;
    for (const Named& one : all)
      if (one.name == name) found.push_back(&one);
    return found;
  };
  std::vector<const Named*> found = of_name(text);
  const std::size_t hash = text.rfind('#');
  if (!found.empty() || hash == std::string::npos) return found;
  std::size_t number = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data() + hash + 1, end, number).ptr != end) return {};
  found = of_name(std::string_view(text).substr(0, hash));
  if (number == 0 || number > found.size()) return {};
  return {found[number - 1]};
}

// Whether the program asks for walks itself: whyrss_snapshot() also has the allocator's counters read.
bool takes_snapshots(const ProcessAccount& process, double edge_s) {
  return std::ranges::any_of(process.allocator_stats, [&](const AllocatorStats& read) {
    return read.moment == "snapshot" && read.time_s <= edge_s && read.time_s > edge_s - kSnapshotBeforeS;
  });
}

// The time of the walk for which the process waited at the edge of its phase, of others of the nearest one, if that
// came after the edge, which asked for it. What the program asked for itself before the edge is what it wants to begin
// or to end with. One after `latest_s`, the interval's end, shows what the interval did.
double walk_at_edge(const ProcessAccount& process, double edge_s, int pid,
                    double latest_s = std::numeric_limits<double>::infinity()) {
  if (process.born_s + kBornTickS > edge_s) return edge_s;  // by the edge it had nothing worth naming
  if (process.pid == pid && std::ranges::binary_search(process.sized_edges_s, edge_s)) return edge_s;
  const auto after = std::ranges::upper_bound(process.accounts, edge_s, {}, &Account::time_s);
  if (after == process.accounts.end() || after->time_s > edge_s + kWalkNearEdgeS) return edge_s;
  if (after == process.accounts.begin()) return after->time_s;
  const bool waited = process.pid == pid && after->asked;
  const bool nearer = after->time_s - edge_s < edge_s - std::prev(after)->time_s;
  return (waited || nearer) && after->time_s <= latest_s && !takes_snapshots(process, edge_s) ? after->time_s : edge_s;
}

struct Edge {
  double time_s = 0;
  bool of_phase = false, of_teardown = false;
  int pid = 0;  // of_phase: whose
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
  constexpr std::size_t kShownColumns = 60;
  const std::string shown = shortened(printable(text), kShownColumns);
  const bool begin = std::string(option) == "--from";
  std::optional<Edge> edge;
  for (const Phase* phase : all_named(recording.phases, text)) {
    const double at_s = begin ? phase->from_s : phase->to_s;
    if (!edge || (begin ? at_s < edge->time_s : at_s > edge->time_s))
      edge = Edge{.time_s = at_s, .of_phase = true, .pid = phase->pid};
  }
  if (edge) return *edge;
  std::optional<double> time_s;
  for (const Mark* mark : all_named(recording.marks, text))
    if (!time_s || !begin) time_s = mark->at_s;
  if (time_s) return Edge{.time_s = *time_s};
  if (text == kTeardown) {
    const auto begin_s = first_teardown(recording);
    if (!begin_s) return Error{fmt::format("{} {}: no process recorded the begin of an orderly end", option, shown)};
    return Edge{.time_s = begin ? *begin_s : whole_life(recording).to_s, .of_teardown = true};
  }
  time_s = parse_seconds(text);
  if (!time_s)
    return Error{
        fmt::format("{} {}: not seconds, a phase, a mark or \"teardown\" ({})", option, shown, names_in(recording))};
  if (*time_s < 0)
    return Error{
        fmt::format("{} {}: before the recording began (0 s; it lasts {:.3f} s)", option, shown, last_end(recording))};
  return Edge{.time_s = *time_s};
}

}  // namespace

std::string numbered_name(const RecordingAccount& recording, const Phase& phase) {
  const std::vector<const Phase*> alike = all_named(recording.phases, phase.name);
  if (alike.size() < 2) return phase.name;
  const auto at = std::ranges::find(alike, &phase);
  return fmt::format("{}#{}", phase.name, at - alike.begin() + 1);
}

std::size_t count_phases(const RecordingAccount& recording, const std::string& text) {
  return all_named(recording.phases, text).size();
}

bool is_moment(const Interval& interval) { return interval.to_s - interval.from_s < 0.0005; }

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

std::optional<double> broken_off_s(const RecordingAccount& recording, const ProcessAccount& process) {
  constexpr double kPollsApartS = 0.1;
  if (recording.info.complete || process.ended_s) return std::nullopt;
  double read_s = 0;
  if (!process.accounts.empty()) read_s = process.accounts.back().time_s;
  if (!process.polls.empty()) read_s = std::max(read_s, process.polls.back().time_s);
  return read_s > 0 && read_s + kPollsApartS < recording.info.duration_s ? std::optional(read_s) : std::nullopt;
}

Interval interval_of(const ProcessAccount& process, Interval interval) {
  if (interval.from_phase) interval.from_s = walk_at_edge(process, interval.from_s, interval.from_pid, interval.to_s);
  if (interval.to_phase) interval.to_s = walk_at_edge(process, interval.to_s, interval.to_pid);
  if (interval.from_teardown) interval.from_s = process.teardown_s.value_or(interval.to_s);
  if (interval.to_teardown && process.teardown_s) interval.to_s = std::min(interval.to_s, *process.teardown_s);
  interval.from_s = std::min(interval.from_s, interval.to_s);
  return interval;
}

Interval interval_of_all(const RecordingAccount& recording, Interval interval) {
  const Interval edges = interval;
  for (const ProcessAccount& process : recording.processes) {
    if (edges.from_phase)
      interval.from_s = std::max(interval.from_s, walk_at_edge(process, edges.from_s, edges.from_pid, edges.to_s));
    if (edges.to_phase) interval.to_s = std::max(interval.to_s, walk_at_edge(process, edges.to_s, edges.to_pid));
  }
  // Who was there at the edge counts: the walks of others may have come after it had left.
  for (const ProcessAccount& process : recording.processes)
    if (edges.to_phase && is_there(process, edges.to_s))
      interval.to_s = std::min(interval.to_s, there_until(process).value_or(interval.to_s));
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
    interval.from_pid = edge->pid;
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
    interval.to_pid = edge->pid;
    interval.to_teardown = edge->of_phase || edge->of_teardown;
  }
  const double end_s = last_end(recording);
  if (interval.from_s > end_s)
    return Error{
        fmt::format("--from {:.3f} s is after the end of the recording, which lasts {:.3f} s", interval.from_s, end_s)};
  if (interval.from_s > interval.to_s)
    return Error{fmt::format("--to {:.3f} s is before --from {:.3f} s (the recording lasts {:.3f} s)", interval.to_s,
                             interval.from_s, end_s)};
  return interval;
}

}  // namespace whyrss
