// The verdict descriptor-growth: files that stay open, and mappings that stay mapped.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// Only in reports that begin with the process: its descriptors and mappings are counted at its first and last walk.
void descriptor_growth(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
