// The two clocks of exact mode's records, read together.
#pragma once

#include <cstdint>

namespace whyrss {

struct ClockReading {
  std::uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  std::uint64_t ticks = 0;    // of the processor; the same as time_ns where it has no such counter
};

// Of some tries the one with the least time between the clocks, so that an interruption does not matter.
ClockReading read_clocks();

}  // namespace whyrss
