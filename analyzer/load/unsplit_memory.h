// Memory that allocators inside libraries have mapped (model/library_allocator.h).
#pragma once

#include "model/account.h"
#include "model/name_table.h"

namespace whyrss {

// Turns Cause::anonymous of such mappings into Cause::heap_unsplit: which of their bytes are live is not known. Once
// native frames have their `names`; a function without one that maps for an allocator gets the allocator's.
void set_apart_unsplit(RecordingAccount& recording, const NameTable& names);

}  // namespace whyrss
