// A recording whose collector was killed has its last events only in the pool: a file in memory of this
// machine, that nobody removes.
#pragma once

#include <string>

namespace whyrss {

// Where a rescued pool lies.
std::string rescued_pool_path(const std::string& recording_dir);

// Moves the pool, which must be one of this recording, into it: the recording then has everything, wherever it is
// copied, and the memory is freed. The caller knows that no collector lives. Nothing happens while a process that
// can still write into the pool lives, or when the recording cannot be written. Several reports may do this at the
// same time; the pool is gone only when the recording has it.
void rescue_pool(const std::string& recording_dir, const std::string& pool_path);

}  // namespace whyrss
