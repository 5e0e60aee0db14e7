// Records of what the allocator said about itself.
#pragma once

#include <vector>

#include "decode/event_stream.h"
#include "model/account.h"

namespace whyrss {

// Adds an allocator_stats record of one process. Of a malformed one, what is not "name=number" is left out; nothing is
// added when nothing is left.
void take_allocator_stats(const EventRecord& record, double time_s, std::vector<AllocatorStats>& stats);

}  // namespace whyrss
