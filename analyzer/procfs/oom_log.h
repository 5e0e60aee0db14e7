// The kernel's words on processes that it killed for lack of memory, lines of its log to structs.
// Source: mm/oom_kill.c (dump_oom_victim, __oom_kill_process), mm/memcontrol.c (mem_cgroup_print_oom_meminfo) and
// mm/memcontrol-v1.c (memcg1_stat_format), Linux 5.0 to 6.18.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace whyrss {

struct OomLine {
  enum class Kind { none, usage, figures, chosen, killed };
  Kind kind = Kind::none;
  int pid = 0;
  bool at_limit = false;  // of a cgroup
  std::string group;      // `chosen` only: the cgroup whose limit was reached, as the kernel names it
  std::int64_t anon_bytes = 0, file_bytes = 0, shmem_bytes = 0;  // `killed` only
  std::int64_t limit_bytes = 0;                                  // `usage` only
  // `figures` only: of the cgroup, in bytes, those that this line has.
  std::optional<std::int64_t> group_anon_bytes, group_shmem_bytes, group_cache_bytes;
};

// Of a line that is about something else the kind is none. A kill is known from both lines, `chosen` first; where a
// whole cgroup is killed the others of it by `killed` alone. What the cgroup held stands before `chosen`: `usage`, then
// `figures`, of which the later ones hold (cgroup v1: the group alone, then with those below it).
OomLine parse_oom_line(std::string_view line);

}  // namespace whyrss
