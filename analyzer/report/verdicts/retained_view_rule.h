// The rule retained-view: large buffers that nothing but small views of them keeps alive.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void retained_view(const View& view, std::vector<Verdict>& verdicts);

// Bytes of buffers that this process keeps only through small views, at the interval's end.
std::int64_t retained_by_views(const ProcessView& process);

}  // namespace whyrss
