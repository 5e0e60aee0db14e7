// The sites of one process as a view shows them: growth between two looks, with who touched them and who gave them up.
#pragma once

#include <map>

#include "report/view.h"

namespace whyrss {

// Each may be null: a process that was not there yet. `huge`: the last look into huge pages.
std::map<Site, SiteView> site_views(const Account* first, const Account* last, const Account* peak,
                                    const Account* huge);

}  // namespace whyrss
