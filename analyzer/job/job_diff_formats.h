// The difference of two jobs as text, Markdown and JSON (schema whyrss.job-diff/1, job_diff.schema.json).
#pragma once

#include <string>
#include <vector>

#include "job/job_diff.h"
#include "job/job_text.h"

namespace whyrss {

std::string render_job_diff_text(const JobDiff& diff, const JobTextStyle& style);
// Of the lines of a cause beyond the `top` one more sums up the rest; as many nodes.
std::string render_job_diff_json(const JobDiff& diff, std::size_t top);

// "rank 37 of 40 holds ...", and on which side it does so.
std::string outlier_diff_text(const JobDiff& diff, const OutlierDiff& outlier);

}  // namespace whyrss
