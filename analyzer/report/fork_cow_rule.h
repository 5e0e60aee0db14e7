// The rule fork-cow-refcount: workers that copied inherited CPython objects by reading them.
#pragma once

#include <vector>

#include "report/verdict.h"

namespace whyrss {

void fork_cow_refcount(const View& view, std::vector<Verdict>& verdicts);

// Whether fork_cow_refcount speaks about this process.
bool is_refcount_copy(const View& view, const ProcessView& process);

}  // namespace whyrss
