// The kernel's words on processes that it killed for lack of memory, lines of its log to structs.
// Source: mm/oom_kill.c (dump_oom_victim, __oom_kill_process), Linux 5.0 to 6.18.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace whyrss {

struct OomLine {
  enum class Kind { none, chosen, killed };
  Kind kind = Kind::none;
  int pid = 0;
  bool at_limit = false;  // of a cgroup
  std::string group;      // `chosen` only: the cgroup whose limit was reached, as the kernel names it
  std::int64_t anon_bytes = 0, file_bytes = 0, shmem_bytes = 0;  // `killed` only
};

// Of a line that is about something else the kind is none. A kill is known from both lines, `chosen` first; where a
// whole cgroup is killed the others of it by `killed` alone.
OomLine parse_oom_line(std::string_view line);

}  // namespace whyrss
