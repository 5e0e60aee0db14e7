#include "clock.h"

#include <algorithm>

namespace whyrss::trace {

constinit Clock g_clock{};

namespace {

struct Moment {
  std::uint64_t ticks, ns;
};

constinit Moment g_start{};

// Both clocks at one moment: the closest of a few tries, since anything may come between two readings.
Moment read_both() noexcept {
  Moment best{};
  std::uint64_t best_apart = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = __rdtsc();
    const std::uint64_t ns = now_ns();
    const std::uint64_t apart = __rdtsc() - before;
    if (apart >= best_apart) continue;
    best_apart = apart;
    best = {.ticks = before + apart / 2, .ns = ns};
  }
  return best;
}

// Shorter distances say too little about the rate.
constexpr std::uint64_t kLeastNs = 2'000'000;

}  // namespace

std::uint64_t slow_now_ns() noexcept {
  if (const std::uint64_t frozen_ns = g_clock.frozen_ns.load(std::memory_order_relaxed); frozen_ns != 0)
    return frozen_ns;
  timespec now{};
  if (is_raw_error(own_syscall(SYS_clock_gettime, CLOCK_MONOTONIC, as_long(&now)))) return g_clock.base_ns;
  return in_readers_time(now);
}

std::uint64_t slow_ticks() noexcept {
  const std::uint64_t ns = now_ns();
  if (g_clock.ticks_per_ns == 0) return ns;
  const auto since_ns = static_cast<double>(ns - std::min(ns, g_clock.base_ns));
  return g_clock.base_ticks + static_cast<std::uint64_t>(since_ns * g_clock.ticks_per_ns);
}

void follow_reader(const TimeOffsets& reader, const WallDistances& readers_wall) noexcept {
  const ReadClock read = g_clock.read.load(std::memory_order_relaxed);
  if (read != nullptr && are_offsets_same(wall_distances(read), readers_wall)) {
    g_clock.ahead_ns = g_clock.boottime_ahead_ns = 0;
    return;
  }
  const TimeOffsets own = own_time_offsets();
  g_clock.ahead_ns = own.monotonic_ns - reader.monotonic_ns;
  g_clock.boottime_ahead_ns = own.boottime_ns - reader.boottime_ns;
}

void use_vdso(ReadClock read) noexcept { g_clock.read.store(read, std::memory_order_relaxed); }

void start_ticks(bool tsc) noexcept {
  if (!tsc || g_clock.read.load(std::memory_order_relaxed) == nullptr) return;
  g_start = read_both();
  g_clock.has_tsc.store(true, std::memory_order_relaxed);
}

void leave_tsc() noexcept {
  if (g_clock.read.load(std::memory_order_relaxed) == nullptr) return;
  Moment now = read_both();
  if (g_clock.has_tsc.load(std::memory_order_relaxed)) {
    while (now.ns - g_start.ns < kLeastNs) now = read_both();
    g_clock.base_ticks = now.ticks;
    g_clock.ticks_per_ns = static_cast<double>(now.ticks - g_start.ticks) / static_cast<double>(now.ns - g_start.ns);
  }
  g_clock.base_ns = now.ns;
  g_clock.has_tsc.store(false, std::memory_order_release);
  g_clock.read.store(nullptr, std::memory_order_release);
}

void freeze_clock() noexcept {
  const std::uint64_t ns = now_ns();
  g_clock.frozen_ns.store(ns, std::memory_order_relaxed);
  leave_tsc();
}

void thaw_clock() noexcept { g_clock.frozen_ns.store(0, std::memory_order_relaxed); }

}  // namespace whyrss::trace
