// The report as a page: one file, which needs nothing else.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// `view` is of the whole recording and of all its processes. The page stays below 10 MB: of large recordings it holds
// the largest sites and says what it sums up.
void write_html(const View& view, const std::vector<Verdict>& verdicts,
                const std::function<void(std::string_view)>& write);

}  // namespace whyrss
