// The clocks of a recording.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace whyrss {

inline std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The one time base of all events, walks and frames.
inline std::int64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

// CPU time of the calling thread, for measuring our own cost.
inline std::int64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// "2026-03-01T12:00:00.123456Z" of a CLOCK_REALTIME reading.
std::string rfc3339(std::int64_t realtime_ns);

}  // namespace whyrss
