// What this process's time namespace adds to the clocks (time_namespaces(7)). Processes of one recording may be in
// several; all its times are those of the reader's namespace. Threads: any, async-signal-safe, no errno.
#pragma once

#include <time.h>

#include <cstdint>

namespace whyrss::trace {

// Towards the initial namespace.
struct TimeOffsets {
  std::int64_t monotonic_ns, boottime_ns;
};

// Zeroes where the kernel has no such namespaces, or does not say.
TimeOffsets own_time_offsets() noexcept;

// How far CLOCK_REALTIME, which no namespace changes, is ahead of the clocks that one does. Where it is as far in two
// processes, they have the same offsets: that takes no file, whose reading is a part of what a short process costs. It
// is not where the clock was set in between.
struct WallDistances {
  std::int64_t from_monotonic_ns, from_boottime_ns;
};

// `read`: of the vDSO; nullptr: by system calls. Zeroes: not known, as in pools of older versions.
using ReadClock = int (*)(clockid_t, timespec*);
WallDistances wall_distances(ReadClock read) noexcept;

bool are_offsets_same(const WallDistances& one, const WallDistances& other) noexcept;

}  // namespace whyrss::trace
