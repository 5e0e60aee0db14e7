// A memory cgroup of our own for one process and what it starts: `record --memory-max`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "collect/cgroup/cgroup.h"
#include "support/result.h"

namespace whyrss {

struct MemoryGroup {
  std::string path;      // its directory
  bool is_ours = false;  // to be removed by us; else systemd does it when the last process has ended
};

struct GroupPlace {
  std::string mount = kCgroupMount;
  std::string membership;         // text of /proc/self/cgroup
  std::string busctl = "busctl";  // how systemd is asked
};
GroupPlace own_place();

// Puts `pid`, a child of ours that waits, into a fresh group with this limit, of which nothing is swapped out. Tried in
// this order: a group made by hand, v1 or v2; a transient scope of systemd's user manager, then of its system manager.
// An error names what was tried and what would enable it. Groups that a killed run has left beside the new one are
// removed.
Result<MemoryGroup> confine(pid_t pid, std::int64_t limit_bytes, const GroupPlace& place);

// True when it is gone. It stays while processes are in it.
bool remove_group(const std::string& path);

}  // namespace whyrss
