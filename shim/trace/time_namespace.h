// What this process's time namespace adds to the clocks (time_namespaces(7)). Processes of one recording may be in
// several; all its times are those of the reader's namespace. Threads: any, async-signal-safe, no errno.
#pragma once

#include <cstdint>

namespace whyrss::trace {

// Towards the initial namespace.
struct TimeOffsets {
  std::int64_t monotonic_ns, boottime_ns;
};

// Zeroes where the kernel has no such namespaces, or does not say.
TimeOffsets own_time_offsets() noexcept;

}  // namespace whyrss::trace
