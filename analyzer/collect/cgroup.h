// The memory cgroup that limits a process, v1 or v2.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace whyrss {

struct CgroupMemory {
  int version = 0;
  std::string path;                         // directory of the group with the smallest limit, else the process's own
  std::optional<std::int64_t> limit_bytes;  // nothing: no limit
  std::optional<std::int64_t> usage_bytes, peak_bytes, oom_kills;
};

// Nothing when no memory cgroup can be read. A job's limit often stands above its own group: the smallest
// one on the way up counts.
std::optional<CgroupMemory> read_cgroup(pid_t pid);

// The same group now.
CgroupMemory reread_cgroup(const CgroupMemory& group);

}  // namespace whyrss
