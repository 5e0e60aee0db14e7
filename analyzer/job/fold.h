// The recordings of a job to what its report shows. Reads one after the other, and holds one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "job/job_view.h"
#include "support/result.h"

namespace whyrss {

using RecordingReader = std::function<Result<ReducedRecording>(std::size_t entry)>;

// `detail_count`: how many of the largest processes are shown in full. `done`: how much of it, from 0 to 1.
Result<JobView> fold_job(const std::string& path, const PartIndex& index, const RecordingReader& read,
                         std::size_t detail_count = 0, const std::function<void(double)>& done = {});

}  // namespace whyrss
