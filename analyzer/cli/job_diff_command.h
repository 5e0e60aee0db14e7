// `whyrss diff JOB JOB`: of two parts, or of parts that `whyrss merge` has joined.
#pragma once

#include "cli/diff_command.h"

namespace whyrss {

// 0; 1 unreadable; 2 an option that a job does not have; 3 --fail-if held.
int run_job_diff(const DiffOptions& options);

}  // namespace whyrss
