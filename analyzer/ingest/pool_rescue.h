// A recording whose collector was killed has its last events only in the pool: a file in memory of this
// machine, that nobody removes.
#pragma once

#include <string>

#include "recording/manifest.h"

namespace whyrss {

// Whether `manifest` was written since this machine started.
bool is_this_boot(const Manifest& manifest);

// Where a rescued pool lies.
std::string rescued_pool_path(const std::string& recording_dir);

// Moves the pool into the recording, which then has everything, wherever it is copied; the memory is freed.
// Nothing happens while the collector or a process that can still write into the pool lives, or when the
// recording cannot be written. The pool is gone only when the recording has it.
void rescue_pool(const std::string& recording_dir, const Manifest& manifest);

}  // namespace whyrss
