#include "time_namespace.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <cstring>
#include <string_view>

#include "own_calls.h"

namespace whyrss::trace {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr long kMostBytes = 256;

std::string_view read_offsets(char (&buffer)[kMostBytes]) noexcept {
  const KernelVisit visit;
  if (!visit) return {};
  const long file = raw_syscall(SYS_openat, AT_FDCWD, as_long("/proc/self/timens_offsets"), O_RDONLY | O_CLOEXEC);
  if (is_raw_error(file)) return {};
  const long size = raw_syscall(SYS_read, file, as_long(buffer), kMostBytes);
  raw_syscall(SYS_close, file);
  return {buffer, is_raw_error(size) ? 0 : static_cast<std::size_t>(size)};
}

// The offsets are those of children: after unshare(CLONE_NEWTIME), not of the process itself.
bool are_own() noexcept {
  char own[kMostBytes], of_children[kMostBytes];
  const long size = own_syscall(SYS_readlink, as_long("/proc/self/ns/time"), as_long(own), kMostBytes);
  const long other =
      own_syscall(SYS_readlink, as_long("/proc/self/ns/time_for_children"), as_long(of_children), kMostBytes);
  return !is_raw_error(size) && size == other && std::memcmp(own, of_children, static_cast<std::size_t>(size)) == 0;
}

std::int64_t take_integer(std::string_view& text) noexcept {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  std::int64_t number = 0;
  for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; text.remove_prefix(1))
    number = number * 10 + (text.front() - '0');
  return negative ? -number : number;
}

// "monotonic           0         0\n": seconds, and nanoseconds to add to them.
std::int64_t offset_of(std::string_view text, std::string_view clock) noexcept {
  const std::size_t at = text.find(clock);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + clock.size());
  const std::int64_t seconds = take_integer(text);
  return seconds * kSecondNs + take_integer(text);
}

constexpr int kTries = 3;
constexpr std::int64_t kMostApartNs = 10'000;  // offsets are seconds

std::int64_t nanoseconds_of(ReadClock read, clockid_t clock) noexcept {
  timespec now{};
  if (read != nullptr)
    read(clock, &now);
  else
    own_syscall(SYS_clock_gettime, clock, as_long(&now));
  return std::int64_t{now.tv_sec} * kSecondNs + now.tv_nsec;
}

bool is_close(std::int64_t one_ns, std::int64_t other_ns) noexcept {
  return one_ns - other_ns < kMostApartNs && other_ns - one_ns < kMostApartNs;
}

}  // namespace

TimeOffsets own_time_offsets() noexcept {
  char buffer[kMostBytes];
  const std::string_view text = read_offsets(buffer);
  const TimeOffsets offsets{.monotonic_ns = offset_of(text, "monotonic"), .boottime_ns = offset_of(text, "boottime")};
  if (offsets.monotonic_ns == 0 && offsets.boottime_ns == 0) return offsets;
  return are_own() ? offsets : TimeOffsets{};
}

WallDistances wall_distances(ReadClock read) noexcept {
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t monotonic_ns = nanoseconds_of(read, CLOCK_MONOTONIC);
    const std::int64_t wall_ns = nanoseconds_of(read, CLOCK_REALTIME);
    const std::int64_t boottime_ns = nanoseconds_of(read, CLOCK_BOOTTIME);
    if (is_close(nanoseconds_of(read, CLOCK_MONOTONIC), monotonic_ns))  // nothing came in between
      return {.from_monotonic_ns = wall_ns - monotonic_ns, .from_boottime_ns = wall_ns - boottime_ns};
  }
  return {};
}

bool are_offsets_same(const WallDistances& one, const WallDistances& other) noexcept {
  return one.from_monotonic_ns != 0 && is_close(one.from_monotonic_ns, other.from_monotonic_ns) &&
         is_close(one.from_boottime_ns, other.from_boottime_ns);
}

}  // namespace whyrss::trace
