// Computes a View, once for all formats, and PSS at a moment, as a View has it of the edges of its interval.
#pragma once

#include <cstdint>
#include <optional>

#include "report/view/process_times.h"
#include "report/view/view.h"

namespace whyrss {

// Without the figures of all processes together, which cost most where there are many.
View build_processes(const ProcessTimes& times, Interval interval, std::optional<int> only_pid = std::nullopt);
View build_processes(const RecordingAccount& recording, Interval interval, std::optional<int> only_pid = std::nullopt);

// One process, with the figures of the walk at `peak_s` as those of its peak.
ProcessView build_with_peak(const RecordingAccount& recording, const ProcessAccount& process, Interval interval,
                            double peak_s);

// The largest sum of the RSS of all processes at one moment, as walks know it.
std::int64_t peak_rss_sum(const ProcessTimes& times, double from_s, double to_s);

struct PssMoment {
  std::optional<std::int64_t> bytes;  // nothing: it was never read
  bool estimate = false;              // it, or what it shares with relatives, has moved since it was read
};

PssMoment pss_of_process(const ProcessTimes& times, const ProcessAccount& process, double time_s);
PssMoment pss_of_family(const ProcessTimes& times, double time_s);  // of those that were there

// `only_pid`: show that process alone.
View build_view(const RecordingAccount& recording, Interval interval, std::optional<int> only_pid = std::nullopt);

}  // namespace whyrss
