// How differences are worded, of recordings and of jobs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/diff/diff.h"
#include "report/wording/table.h"

namespace whyrss {

// For columns in MiB: "+12.3 ± 4 %", "+12.3 (+10.1 to +14.0)".
std::string change_text(const DiffFigure& figure);
// "Peak RSS: 120 MiB in A, 130 MiB in B: +10 MiB (+8 %)"; above 1000 % how many times A it is.
std::string change_line(const std::string& what, const DiffFigure& figure);
// Causes below `shown_bytes` on both sides are summed in one row; changes below it have no state.
Table cause_table(const std::vector<DiffCause>& causes, const DiffFigure& rss, std::int64_t shown_bytes);
// " (line 38 in A)" where it has moved.
std::string moved_text(const DiffLine& line);

}  // namespace whyrss
