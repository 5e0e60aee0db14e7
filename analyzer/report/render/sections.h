// The evidence parts of a report, shared by the formats for people (text and Markdown).
#pragma once

#include <string>
#include <vector>

#include "report/render/process_text.h"
#include "report/view/view.h"
#include "report/wording/table.h"

namespace whyrss {

// "Memory by process and cause, MiB", and of which interval where that is not all.
std::string cause_title(const View& view);
// Process x cause in MiB; causes below 1 MiB are summed in one row per process.
// `sections`: of the answer; who is spoken of there has rows of its own, as far as there is room. `top`: so many
// processes with a few causes each; the others are summed.
Table cause_table(const View& view, const std::vector<ProcessSection>& sections, std::size_t top);
// The lines with the most growth, over all processes and causes. At most `top`.
Table line_table(const View& view, std::size_t top);
// The same by the lines that made the memory resident, and the line that mapped or allocated most of it.
Table touch_table(const View& view, std::size_t top);
// `top` processes, and the sum of the others.
Table process_table(const View& view, const std::vector<ProcessSection>& sections, std::size_t top);

// "517 MiB now, ..." of the whole tree, one sentence per line.
std::vector<std::string> family_lines(const View& view);
// What is missing from the recording, `top` lines and a number for each of its processes; says so when nothing is.
std::vector<std::string> loss_lines(const View& view, std::size_t top);
// What the recording cost beside the job; "" where that is not known.
std::string cost_line(const View& view);
// What this machine or version could not tell.
std::vector<std::string> limit_lines(const View& view, std::size_t top);

// So many lines, and how many more there were.
void keep_first(std::vector<std::string>& lines, std::size_t most);

// "whyrss-python-4711: python quickstart.py, 9.8 s from 2026-...".
std::string recording_line(const View& view);

}  // namespace whyrss
