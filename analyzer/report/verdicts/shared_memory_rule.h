// The rule shared-memory-growth: tmpfs, memfd, SysV and shared anonymous memory, counted once for the tree.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void shared_memory_growth(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
