// A recording's view to what a part keeps of it. Figures are the report's own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "job/part.h"
#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

ReducedRecording reduce(const View& view, const std::vector<Verdict>& verdicts);

// The place in a job, as its launcher's variables say it (recording/job_variables.h).
struct JobPlace {
  std::string job, node, node_list;
  std::optional<std::int64_t> rank, local_rank, world_size;
};
JobPlace job_place(const std::map<std::string, std::string>& environment);

// What the first process says of it that says anything: of a tree the root need not (torchrun). "": none does.
std::string first_place(const RecordingAccount& recording, std::string JobPlace::*part);

}  // namespace whyrss
