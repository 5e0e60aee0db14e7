// The stacks of the lines with the most growth: below each line its callers, and then what it called itself (a library
// that allocated for it), each merged as far as they are the same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

// For text and code blocks; at most `top` lines of code, over all processes and causes.
std::vector<std::string> call_chain_lines(const View& view, std::size_t top);

}  // namespace whyrss
