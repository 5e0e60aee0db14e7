// The memory cgroup that limits a process, v1 or v2.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace whyrss {

inline constexpr const char* kCgroupMount = "/sys/fs/cgroup";

// One that has a limit.
struct LimitedGroup {
  std::string path;
  std::int64_t limit_bytes = 0;
  friend bool operator==(const LimitedGroup&, const LimitedGroup&) = default;
};

struct CgroupMemory {
  int version = 0;
  std::string path;                         // directory of the group with the smallest limit, else the process's own
  std::string own_path;                     // of the process's own group: v1 counts a kill there alone
  std::optional<std::int64_t> limit_bytes;  // nothing: no limit
  bool kills_all = false;                   // v2: a kill in it ends all its processes
  std::vector<LimitedGroup> limits;         // its own and those above it
};

// Nothing when no memory cgroup can be read. A job's limit often stands above its own group: the smallest
// one on the way up counts.
std::optional<CgroupMemory> read_cgroup(pid_t pid);
// `membership`: the text of /proc/PID/cgroup; `mount`: where the hierarchies are.
std::optional<CgroupMemory> find_cgroup(const std::string& membership, const std::string& mount);

// A group by its directory; its own limit alone counts.
std::optional<CgroupMemory> cgroup_at(const std::string& directory);

// What the group holds now, its descendants included, and what has happened since it was made; by the names of
// CgroupReading (model/account.h). What this kernel does not tell is missing.
using CgroupFigures = std::map<std::string, std::int64_t>;
CgroupFigures read_figures(const CgroupMemory& group);
// Of these only usage_bytes, at less cost.
std::optional<std::int64_t> read_usage(const CgroupMemory& group);

// What may still be used before a limit is met, its own or one above it: the least. Page cache that the kernel can take
// back counts as used, but in `with_cache_bytes`. Nothing: no limit.
struct Headroom {
  std::int64_t bytes = 0;
  LimitedGroup group;
};
std::optional<Headroom> read_headroom(const CgroupMemory& group);
std::int64_t with_cache_bytes(const Headroom& headroom);

}  // namespace whyrss
