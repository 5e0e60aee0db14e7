// Ticks of exact mode's records and nanoseconds of everything else: one clock of a host known from the other.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/block_runs.h"

namespace whyrss {

class TickClock {
 public:
  // Of all processes of a recording. Where the collector's own readings are few, the writers' count too.
  void add(const BlockRuns& runs);
  // When all were added.
  void settle();

  // Between two readings by interpolation, outside of them with the rate of the nearest two.
  [[nodiscard]] std::uint64_t ticks_at(std::uint64_t time_ns) const;

 private:
  std::vector<ClockPoint> points_, writers_;
};

}  // namespace whyrss
