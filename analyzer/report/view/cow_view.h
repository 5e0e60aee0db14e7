// Copies since fork as a report shows them.
#pragma once

#include "report/view/view.h"

namespace whyrss {

// Fills `copied`, `cow_sites` and the other figures about shared pages of `view`, whose account is set. Sites of one
// allocated_at are fitted to the exact bytes that were copied of it where the samples can stand for all of them; else
// what no sample tells of stays a site with an empty written_at.
void add_copies(ProcessView& view, Interval interval);

}  // namespace whyrss
