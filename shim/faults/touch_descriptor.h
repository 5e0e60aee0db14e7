// The short life of an event's descriptor: opened, mapped, closed. A fork of another thread in between would
// leave a copy of it in the child, and keep the event alive when its thread has given it up.
#pragma once

#include "shim/sys/raw_io.h"

namespace whyrss::shim {

// perf_event_open with `attributes` for the calling thread, then one page of it. The page, or -errno;
// -EDQUOT where the kernel locks no more pages for this user.
long map_event(const void* attributes) noexcept;

// In a fork child: closes what a thread of the parent had open at that moment.
void close_copied_events() noexcept;

}  // namespace whyrss::shim
