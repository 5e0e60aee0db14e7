// The rules imports: what importing modules cost a process; per-process-import: workers that import the same modules
// each for itself, and share nothing of them.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void import_cost(const View& view, std::vector<Verdict>& verdicts);
void per_process_import(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
