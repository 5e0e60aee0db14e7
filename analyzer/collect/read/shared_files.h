// Files in memory (memfd, POSIX shared memory, tmpfs, SysV segments): which a process has open, how large they are, and
// what of them is mapped. Read from /proc; nothing here waits for a file system on disk or a network.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collect/read/backing.h"
#include "procfs/maps.h"

namespace whyrss {

struct SharedFileId {
  std::uint32_t device_major = 0, device_minor = 0;
  std::uint64_t inode = 0;
  friend auto operator<=>(const SharedFileId&, const SharedFileId&) = default;
};

struct SharedFile {
  SharedFileId id;
  std::string path;               // as the kernel names it: " (deleted)" at the end of what was unlinked
  std::int64_t memory_bytes = 0;  // what it takes, in swap too
  // CLOCK_REALTIME; `made_s` where the kernel does not say it: as `changed_s`.
  double made_s = 0, changed_s = 0;
};

// Those that the process has open, each once; without whyrss's own. Nothing where /proc/PID/fd may not be read.
std::optional<std::vector<SharedFile>> open_shared_files(pid_t pid, BackingResolver& resolver);

// What that path is for the process; nothing where it is no file in memory, or gone.
std::optional<SharedFile> shared_file_at(pid_t pid, const std::string& path, BackingResolver& resolver);

// Which files in /dev/shm are the job's: those with one of these inodes that have changed since `since_s`
// (CLOCK_REALTIME), and those made since whose names, or the folder they are in, have one of these numbers between
// other characters than letters and digits: torch_PID_x, joblib_memmapping_folder_PID_x.
struct SharedFileSigns {
  std::set<pid_t> pids;
  double since_s = 0;
  std::set<std::uint64_t> inodes;
};
struct NamedSharedFile {
  SharedFile file;
  pid_t pid = 0;  // the one in its name; 0: none
};
std::vector<NamedSharedFile> find_named_files(pid_t pid, const SharedFileSigns& signs, BackingResolver& resolver);

// A SysV segment that no process has attached. From /proc/sysvipc/shm.
struct DetachedSegment {
  std::string name;
  std::uint64_t id = 0;
  pid_t creator = 0;
  std::int64_t memory_bytes = 0;  // resident and in swap
};
std::vector<DetachedSegment> parse_detached_segments(std::string_view text);

// Parts of files that some process maps, each counted once.
class MappedParts {
 public:
  void add(const std::vector<MapsEntry>& mappings);
  [[nodiscard]] std::int64_t bytes_of(const SharedFileId& id) const;

 private:
  std::map<SharedFileId, std::vector<std::pair<std::uint64_t, std::uint64_t>>> parts_;  // offsets: [begin, end)
};

}  // namespace whyrss
