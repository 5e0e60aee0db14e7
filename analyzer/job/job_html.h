// The report of a job as a page: one file, which needs nothing else (analyzer/web).
#pragma once

#include <functional>
#include <string_view>

#include "job/job_timeline.h"
#include "job/job_view.h"

namespace whyrss {

// Below 10 MB: of very large jobs it holds the nodes nearest to their limit and the largest lines, and says so.
void write_job_html(const JobView& job, const JobTimeline& timeline,
                    const std::function<void(std::string_view)>& write);

}  // namespace whyrss
