// The report of a job for programs: schema whyrss.job/1, described in job.schema.json.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "job/job_view.h"

namespace whyrss {

// Listed at most; lines of each group.
struct JobBounds {
  std::size_t lines = 1000, nodes = 1000, files = 1000;
};

// What both a report and a diff say of a job as a whole: its recordings; its ranks, and what is missing of it.
void add_recordings(nlohmann::ordered_json& json, const JobView& job);
void add_what_is_missing(nlohmann::ordered_json& json, const JobView& job);

nlohmann::ordered_json job_document(const JobView& job, const JobBounds& bounds);
std::string render_job_json(const JobView& job, std::size_t top);

}  // namespace whyrss
