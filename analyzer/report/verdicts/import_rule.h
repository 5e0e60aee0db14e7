// The rule per-process-import: workers that import the same modules each for itself, and share nothing of them.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void per_process_import(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
