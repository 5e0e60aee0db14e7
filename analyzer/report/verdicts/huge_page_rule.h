// The rule huge-page-padding: memory that is resident only because the kernel mapped it 2 MiB at a time.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void huge_page_padding(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
