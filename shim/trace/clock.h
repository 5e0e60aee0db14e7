// The library's only clock: CLOCK_MONOTONIC, and the ticks that time the events of exact mode.
//
// The vDSO reads the processor's time stamp counter, which a program may forbid to itself (PR_SET_TSC): each reading is
// then a SIGSEGV. So the clock begins with the system call, goes over to the vDSO where the counter may be read, and
// goes back for good before the program forbids it. That is per thread in the kernel, inherited by new threads and fork
// children, and for the whole process here: which threads have it cannot be seen.
//
// Ticks go on in the counter's own rate without it: the reader compares them across threads and processes.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <x86intrin.h>

#include <atomic>
#include <cstdint>

#include "own_calls.h"
#include "time_namespace.h"

namespace whyrss::trace {

struct Clock {
  std::atomic<ReadClock> read;           // of the vDSO; nullptr: the system call
  std::atomic<bool> has_tsc;             // ticks are the counter's
  std::atomic<std::uint64_t> frozen_ns;  // not 0: no clock is left that needs no system call, and time stands still
  // Since the counter is left: ticks = base_ticks + (now - base_ns) * ticks_per_ns; 0: ticks are ns. Where no clock can
  // be read, now is base_ns.
  std::uint64_t base_ticks, base_ns;
  double ticks_per_ns;
  // Of the reader's clocks, in another time namespace.
  std::int64_t ahead_ns, boottime_ahead_ns;
};
extern constinit Clock g_clock;

inline std::uint64_t in_readers_time(const timespec& now) noexcept {
  return static_cast<std::uint64_t>(std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - g_clock.ahead_ns);
}

// Where the vDSO cannot be asked.
std::uint64_t slow_now_ns() noexcept;
std::uint64_t slow_ticks() noexcept;

inline std::uint64_t now_ns() noexcept {
  const ReadClock read = g_clock.read.load(std::memory_order_relaxed);
  timespec now{};
  if (read == nullptr || read(CLOCK_MONOTONIC, &now) != 0) [[unlikely]]
    return slow_now_ns();
  return in_readers_time(now);
}

inline std::uint64_t ticks_now() noexcept {
  return g_clock.has_tsc.load(std::memory_order_acquire) ? __rdtsc() : slow_ticks();
}

// No clock may be read: a wait would never end.
inline bool does_clock_stand_still() noexcept {
  return g_clock.read.load(std::memory_order_relaxed) == nullptr && is_kernel_closed();
}

// Once per image and per fork child, before anything else of it is timed.
void follow_reader(const TimeOffsets& reader, const WallDistances& readers_wall) noexcept;
// Once per image, where the counter may be read. `read`: of the vDSO.
void use_vdso(ReadClock read) noexcept;
// Once per image, before the first tick. `tsc`: the kernel's clock is the counter, so that all processors agree.
void start_ticks(bool tsc) noexcept;
// Before the program forbids the counter.
void leave_tsc() noexcept;
// No system call may be made any more, and the vDSO would make one (or may not be asked): time stands still.
void freeze_clock() noexcept;
void thaw_clock() noexcept;

}  // namespace whyrss::trace
