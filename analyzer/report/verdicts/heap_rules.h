// Verdicts about the heap: what is live, what the allocator keeps, what live blocks pin.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void heap_growth(const View& view, std::vector<Verdict>& verdicts);
void heap_retained(const View& view, std::vector<Verdict>& verdicts);
void heap_fragmented(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
