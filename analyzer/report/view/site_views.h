// The sites of one cause of a process as a view shows them: growth between two walks, with who touched them and who
// gave them up.
#pragma once

#include <vector>

#include "report/view/view.h"

namespace whyrss {

// Each may be null: a process that was not there yet. `huge`: the last walk that inspected huge pages.
// Largest growth first.
std::vector<SiteView> site_views(Cause cause, const Account* first, const Account* last, const Account* peak,
                                 const Account* huge);

}  // namespace whyrss
