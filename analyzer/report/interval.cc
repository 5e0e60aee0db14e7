#include "report/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace whyrss {
namespace {

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

Result<double> parse_time(const RecordingAccount& recording, const char* option, const std::string& text) {
  const bool begin = std::string(option) == "--from";
  std::optional<double> time_s;
  for (const Phase& phase : recording.phases) {
    if (phase.name != text) continue;
    if (!time_s) time_s = begin ? phase.from_s : phase.to_s;
    time_s = begin ? std::min(*time_s, phase.from_s) : std::max(*time_s, phase.to_s);
  }
  if (!time_s) time_s = parse_seconds(text);
  if (!time_s)
    return Error{fmt::format("{} {}: neither seconds nor a phase ({})", option, text, phase_names(recording))};
  return *time_s;
}

}  // namespace

Interval whole_life(const RecordingAccount& recording) {
  Interval interval;
  for (const ProcessAccount& process : recording.processes) {
    interval.to_s = std::max(interval.to_s, process.ended_s.value_or(recording.info.duration_s));
    if (!process.accounts.empty()) interval.to_s = std::max(interval.to_s, process.accounts.back().time_s);
  }
  if (recording.processes.empty()) interval.to_s = recording.info.duration_s;
  return interval;
}

Result<Interval> parse_interval(const RecordingAccount& recording, const std::string& from, const std::string& to) {
  Interval interval = whole_life(recording);
  if (!from.empty()) {
    const Result<double> time_s = parse_time(recording, "--from", from);
    if (!time_s) return Error{time_s.error()};
    interval.from_s = std::max(0.0, *time_s);
  }
  if (!to.empty()) {
    const Result<double> time_s = parse_time(recording, "--to", to);
    if (!time_s) return Error{time_s.error()};
    interval.to_s = std::min(interval.to_s, *time_s);
  }
  if (interval.from_s > interval.to_s)
    return Error{fmt::format("the interval from {:.3f} s to {:.3f} s is empty (the recording lasts {:.3f} s)",
                             interval.from_s, interval.to_s, whole_life(recording).to_s)};
  return interval;
}

}  // namespace whyrss
