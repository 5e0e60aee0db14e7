// The clock of the kernel's log (local_clock() of kernel/sched/clock.c). It begins near CLOCK_MONOTONIC and runs at a
// rate of its own: 4 parts in a million slower was measured, 0.4 s a day.
#pragma once

#include <cstdint>

namespace whyrss {

// How far it is ahead of CLOCK_MONOTONIC now, to some 0.1 ms: perf events have its time. Where none may be opened that
// is not known: 0.
std::int64_t kernel_log_ahead_ns();

}  // namespace whyrss
