// The kernel's own mark of the largest RSS (VmHWM), which may have been reached between any two walks and polls.
#pragma once

#include "model/account.h"

namespace whyrss {

// Takes polls and accounts into the mark. Where the mark is clearly higher than all of them, the largest account gets a
// companion of that size, with the bytes that no walk shows as Cause::not_looked_at. Its time is not known: it is
// reported for the moment right before that account. None where exit handlers reached the mark.
void settle_high_water(ProcessAccount& process);

}  // namespace whyrss
