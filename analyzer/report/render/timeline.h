// Memory over time and by phase, for the formats for people.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/render/process_text.h"
#include "report/view/view.h"
#include "report/wording/table.h"

namespace whyrss {

// One character per value, from U+2581 (nothing) to U+2588 (the largest); a middle dot where there is none.
std::string sparkline(const std::vector<std::optional<std::int64_t>>& values);

// RSS and the main causes of the processes that the answer speaks of, over the view's interval. Figures are those of
// the view; a chart shows the largest of what was polled (RSS) or known from walks and events (causes) in each column's
// time. Nothing where the interval is empty.
std::optional<Table> timeline_table(const View& view, const std::vector<ProcessSection>& sections);

// What a chart shows, and how long one of its columns is.
std::string timeline_title(const View& view);

// The growth of all processes in each phase, RSS and by cause, and their largest RSS in it: the `top` phases that moved
// most, by time. Nothing where the recording has no phases within the view's interval.
std::optional<Table> phase_table(const View& view, std::size_t top);

// "Phases, MiB of growth of all processes", and how many are not shown.
std::string phase_title(const View& view, std::size_t top);

// Marks within the view's interval, at most `top` of them; none: nothing.
std::vector<std::string> mark_lines(const View& view, std::size_t top);

}  // namespace whyrss
