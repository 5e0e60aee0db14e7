// The rule rss-double-counted.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

// The RSS of all processes together is far above their PSS, so that a limit that adds up RSS counts memory that is
// there once several times.
void rss_double_counted(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
