// /proc/PID/stat, statm and status, text to structs. Source: proc(5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace whyrss {

struct ProcessStat {
  std::string comm;
  char state = '?';  // Z, X: it has ended
  std::int64_t parent_pid = 0;
  std::uint64_t minor_faults = 0, major_faults = 0;  // of all its threads, ended ones too
  std::uint64_t cpu_ticks = 0;                       // user and system time of all its threads
  std::int64_t thread_count = 0;
  std::uint64_t start_ticks = 0;  // since boot
  std::uint64_t start_code = 0;   // 1 without the right to trace, 0 in the middle of an exec
  std::uint64_t start_stack = 0;  // 0 without it, and when an exec begins
  int exit_status = 0;            // as wait() tells it, of one that has ended; 0 also without the right to trace

  [[nodiscard]] bool has_ended() const { return state == 'Z' || state == 'X'; }
};

std::optional<ProcessStat> parse_process_stat(std::string_view text);

struct MemoryPages {
  std::uint64_t size = 0, resident = 0, shared = 0;  // shared: file and shmem pages
};

std::optional<MemoryPages> parse_statm(std::string_view text);

// The value of "Name:\t  123 kB" or "Name:\t123" in status, in the unit printed.
std::optional<std::int64_t> status_value(std::string_view text, std::string_view name);

}  // namespace whyrss
