// Memory of a job over time. Each node has a clock of its own: 0 is when its first recording began, and no two clocks
// are compared beyond that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "job/fold.h"
#include "job/job_view.h"

namespace whyrss {

inline constexpr std::size_t kStretches = 240;  // of the time of a job; a screen shows no more

// Of one stretch of time.
struct TimelineStretch {
  std::array<std::int64_t, kCauseCount> causes{};  // summed over processes, on average over the stretch
  // RSS of the processes that were there, at the most that each had in it; quantiles to 1 %.
  std::int64_t p50 = 0, p95 = 0, p99 = 0, max = 0;
  std::size_t process_count = 0;
};

struct GroupTimeline {
  std::optional<std::size_t> group{};  // in JobView::groups; nothing: all processes of the job
  std::vector<TimelineStretch> stretches{};
};

struct JobTimeline {
  double stretch_s = 0;
  std::vector<GroupTimeline> groups{};  // all processes, then the largest groups
};

// Reads each recording once more: how long a job was is known at its end.
Result<JobTimeline> job_timeline(const JobView& job, const PartIndex& index, const RecordingReader& read,
                                 const std::function<void(double)>& done = {});

}  // namespace whyrss
