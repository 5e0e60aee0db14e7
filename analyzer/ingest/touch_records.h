// Records about sampled page faults: how many there were, and why there are none.
#pragma once

#include "ingest/event_stream.h"
#include "model/account.h"

namespace whyrss {

// A touch or touch_state record of one process. Malformed ones count nothing.
void count_touch(const EventRecord& record, TouchFigures& touch);

}  // namespace whyrss
