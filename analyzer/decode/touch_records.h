// Records about page faults: how many there were, why there are none, and whose pages they brought in.
#pragma once

#include <optional>

#include "attribute/address_space.h"
#include "decode/event_stream.h"
#include "decode/image_tables.h"
#include "model/account.h"
#include "model/thread_starts.h"

namespace whyrss {

// Of a touch record; nothing when it is malformed. Its stack is not resolved.
std::optional<TouchSample> touch_sample(const EventRecord& record);
// A touch, kernel_faults or touch_state record of one process. Malformed ones count nothing.
void count_touch(const EventRecord& record, TouchFigures& touch);
// The same record; touch_state changes nothing here. `stacks` is that of `image`.
void take_touch(const EventRecord& record, ImageTables& image, ThreadStarts& threads, StackTable& stacks,
                AddressSpace& space);

}  // namespace whyrss
