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

}  // namespace

TimeOffsets own_time_offsets() noexcept {
  char buffer[kMostBytes];
  const std::string_view text = read_offsets(buffer);
  const TimeOffsets offsets{.monotonic_ns = offset_of(text, "monotonic"), .boottime_ns = offset_of(text, "boottime")};
  if (offsets.monotonic_ns == 0 && offsets.boottime_ns == 0) return offsets;
  return are_own() ? offsets : TimeOffsets{};
}

}  // namespace whyrss::trace
