// Evidence in, causes out. Pure: no clock, no file, no state.
#pragma once

#include "attribute/evidence.h"
#include "model/account.h"
#include "model/page_map.h"

namespace whyrss {

// Every resident byte of `evidence` gets exactly one cause: the first rule that wants it (the order of
// Cause), else `unknown`. The slices sum to the resident bytes.
// `picture`, where it is not nullptr: what each of the pages is.
Account attribute(const Evidence& evidence, PageMap* picture = nullptr);

}  // namespace whyrss
