#include "collect/read/process_presence.h"

#include <fmt/format.h>

#include <cerrno>

#include "support/file.h"

namespace whyrss {

std::optional<ProcessStat> read_stat(pid_t pid) {
  errno = 0;
  const auto text = read_line_file(fmt::format("/proc/{}/stat", pid));
  return text ? parse_process_stat(*text) : std::nullopt;
}

std::optional<std::uint64_t> start_ticks_of(pid_t pid) {
  const auto stat = read_stat(pid);
  if (!stat) return std::nullopt;
  return stat->start_ticks;
}

bool says_gone(int error) { return error == ENOENT || error == ESRCH; }

Presence presence_of(pid_t pid, std::uint64_t start_ticks) {
  const auto ticks = start_ticks_of(pid);
  if (ticks) return *ticks == start_ticks ? Presence::there : Presence::gone;
  return says_gone(errno) ? Presence::gone : Presence::unknown;
}

}  // namespace whyrss
