// A part of a job to what its report shows.
#pragma once

#include <cstddef>
#include <string>

#include "cli/progress.h"
#include "job/job_timeline.h"
#include "support/result.h"

namespace whyrss {

// Of a list in the JSON of a job, where --top does not say.
inline constexpr std::size_t kJobJsonEntries = 1000;

struct TimedJob {
  JobView job;
  JobTimeline timeline;
};
// Reads it twice.
Result<TimedJob> load_timed_job(const std::string& path, Progress& progress);

// `detail_count`: how many of the largest processes are shown in full.
Result<JobView> load_job(const std::string& path, std::size_t detail_count, Progress& progress);

}  // namespace whyrss
