// Large buffers of numpy and torch that are kept only by views of a small part of them.
#pragma once

#include <cstdint>
#include <vector>

#include "collect/read/liveness_read.h"
#include "collect/read/target_memory.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

// True when the target has loaded numpy or torch.
bool has_views(const PageWalk& walk);

// Views of a buffer that is kept by views alone, all of them together smaller than a sixteenth of it (kRetainedRatio).
// Buffers below kLeastBufferBytes are not read. Nothing when there are too many arrays to read in a moment.
std::vector<trace::RetainingView> find_retaining_views(const TargetMemory& memory, const Liveness& liveness,
                                                       bool with_tensors);
bool has_tensors(const PageWalk& walk);

}  // namespace whyrss
