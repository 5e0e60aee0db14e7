// `whyrss report JOB`: of a part, or of parts that `whyrss merge` has joined.
#pragma once

#include "cli/report_command.h"

namespace whyrss {

// 0; 1 unreadable; 2 an option that a job does not have.
int run_job_report(const ReportOptions& options);

}  // namespace whyrss
