// Verdicts about the heap: what is live, what the allocator keeps, what live blocks pin.
#pragma once

#include <string>
#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

// ", freed in its last 0.2 s" of a heap that was, by the process's own doing or as main() returned; else "".
std::string freed_late_text(const View& view, const ProcessView& process);

void heap_growth(const View& view, std::vector<Verdict>& verdicts);
void heap_retained(const View& view, std::vector<Verdict>& verdicts);
void heap_fragmented(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
