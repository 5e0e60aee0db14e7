// What a fork child got from its parent: the private anonymous pages that are resident when it begins.
// By the PAGEMAP_SCAN ioctl (Linux 6.7+), else by reading /proc/self/pagemap over /proc/self/maps.
#pragma once

#include <cstdint>
#include <span>

#include "shim/events/thread_state.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Writes InheritedRecords for this process; the last one has `complete` set. In a fork child, before
// the program gets it back; one descriptor is open for a moment.
void report_inherited_pages(ThreadState& thread) noexcept;

// The two ways, apart for tests: call take(run) for each run in address order; false when this kernel
// or sandbox does not offer the way.
using TakeRun = void (*)(void* context, trace::PageRun run);
bool scan_by_ioctl(TakeRun take, void* context) noexcept;
bool scan_by_pagemap(TakeRun take, void* context) noexcept;

}  // namespace whyrss::shim
