// Memory that allocators inside libraries have mapped (model/library_allocator.h).
#pragma once

#include "model/account.h"

namespace whyrss {

// Turns Cause::anonymous of such mappings into Cause::heap_unsplit: which of their bytes are live is not known. Once
// native frames have their names.
void set_apart_unsplit(RecordingAccount& recording);

}  // namespace whyrss
