// What became of memory shared by forks, for people.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

// A line per process that copied at least 1 MiB or was left with as much, and below it the lines that made and wrote
// it; of those that do not fit into `top` lines, the sum.
std::vector<std::string> cow_lines(const View& view, std::size_t top);

}  // namespace whyrss
