// Shared memory that no process maps, between its readings and the walks.
#pragma once

#include <vector>

#include "model/account.h"

namespace whyrss {

// It is read every 0.1 s or more rarely: what a walk since a reading found resident of a file is mapped, and counts in
// that process's RSS. Adds a reading at the first such walk, without it, and marks the files that are mapped later.
// Files with a path alone: the names of others are not theirs alone.
void leave_out_mapped(std::vector<ProcessAccount>& processes);

}  // namespace whyrss
