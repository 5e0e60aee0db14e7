// The evidence parts of a report, shared by the formats for people (text and Markdown).
#pragma once

#include <string>
#include <vector>

#include "report/table.h"
#include "report/view.h"

namespace whyrss {

// Process x cause in MiB; causes below 1 MiB are summed in one row per process.
Table cause_table(const View& view);
// The lines with the most growth, over all processes and causes. At most `top`.
Table line_table(const View& view, std::size_t top);
// The same by the lines that made the memory resident, and the line that mapped or allocated most of it.
Table touch_table(const View& view, std::size_t top);
Table process_table(const View& view);

// "517 MiB now, ..." of the whole tree, one sentence per line.
std::vector<std::string> family_lines(const View& view);
// What is missing from the recording; says so when nothing is.
std::vector<std::string> loss_lines(const View& view);
// What the recording cost beside the job; "" where that is not known.
std::string cost_line(const View& view);
// What this machine or version could not tell.
std::vector<std::string> limit_lines(const View& view);

// "whyrss-python-4711: python quickstart.py, 9.8 s from 2026-...".
std::string recording_line(const View& view);

}  // namespace whyrss
