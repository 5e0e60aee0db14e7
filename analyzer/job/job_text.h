// The report of a job, for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/job_view.h"
#include "report/wording/wrap.h"

namespace whyrss {

struct JobTextStyle {
  std::size_t top = 10;  // lines, nodes, files and outliers shown at most
  bool markdown = false;
  std::size_t columns = kTextColumns;  // of a line of text, at most
};

// As --format and --top say.
inline JobTextStyle job_text_style(std::string_view format, std::optional<std::size_t> top, std::size_t columns) {
  return {.top = top.value_or(JobTextStyle{}.top), .markdown = format == "markdown", .columns = columns};
}

// What needs a decision first: outliers, nodes near their limit, ranks that are missing, then what ranks have in
// common.
struct JobHeadline {
  Severity severity = Severity::info;
  std::string text{};
};
std::vector<JobHeadline> job_headlines(const JobView& job, std::size_t top);
// One sentence each; of a job of which nothing is missing, that.
std::vector<std::string> missing_from(const JobView& job);

std::string render_job_text(const JobView& job, const JobTextStyle& style);

// "37": the rank, else "pid 4711 on node0001".
std::string label_text(const ProcessLabel& label);
// "rank 37 of 4,608 holds 3.1 times the median: 1.2 GiB, 400 MiB in the middle; 800 MiB live heap at cache.py:11".
std::string outlier_text(const JobView& job, const Outlier& outlier);
// "cache.py:11 in load", of files what is mapped.
std::string line_text(const JobLine& line);
// "job 4711: 4,608 ranks on 576 nodes, 100,000 processes in 4,608 recordings, from 2026-03-01T12:00:00.000000Z"
std::string head_text(const JobView& job);
// "train.py, its workers"
std::string group_name(const JobGroup& group);
// "4,608"; "4,608 ranks".
std::string count_text(std::uint64_t count);
std::string plural(std::uint64_t count, std::string_view word);

}  // namespace whyrss
