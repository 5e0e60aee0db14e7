// The native code that the stacks of a recording are in, without an account of anything: what names are needed of.
#pragma once

#include "model/stack_table.h"
#include "recording/manifest.h"
#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

// Of one that is closed. Takes half of what load_account() takes, or less, and finds all frames that this finds.
Result<StackTable> load_native_frames(const Folder& folder, const Manifest& manifest);

}  // namespace whyrss
