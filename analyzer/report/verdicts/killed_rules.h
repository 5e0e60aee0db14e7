// Verdicts on jobs that were killed: by the kernel for lack of memory, or by another process.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void oom_killed(const View& view, std::vector<Verdict>& verdicts);
void killed_from_outside(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
