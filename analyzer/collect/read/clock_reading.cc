#include "collect/read/clock_reading.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <limits>

#include "support/clock.h"

namespace whyrss {
namespace {

std::uint64_t processor_ticks(std::uint64_t time_ns) {
#if defined(__x86_64__)
  static_cast<void>(time_ns);
  return __rdtsc();
#else
  return time_ns;
#endif
}

}  // namespace

ClockReading read_clocks() {
  ClockReading best;
  std::uint64_t least_ns = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 5; ++i) {
    const auto before_ns = static_cast<std::uint64_t>(monotonic_ns());
    const std::uint64_t ticks = processor_ticks(before_ns);
    const std::uint64_t took_ns = static_cast<std::uint64_t>(monotonic_ns()) - before_ns;
    if (took_ns >= least_ns) continue;
    least_ns = took_ns;
    best = {.time_ns = before_ns, .ticks = ticks};
  }
  return best;
}

}  // namespace whyrss
