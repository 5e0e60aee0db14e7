// Shared memory that no process of the tree maps, counted once: at the process that was read with it first, while that
// lives; else at one that has it open, else at the first of the tree. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collect/loop/process_follow.h"
#include "collect/read/shared_files.h"
#include "recording/manifest.h"

namespace whyrss {

class UnmappedReader {
 public:
  struct Process {
    ProcessKey key;
    pid_t pid = 0;
    std::int64_t born_ns = 0;
  };
  struct File {
    std::string name;
    std::int64_t bytes = 0;
    SharedFileId id{};  // of a System V segment: its id on no device
    friend auto operator<=>(const File&, const File&) = default;
  };
  // Of one process, largest first; nothing where its open files may not be read.
  using Files = std::optional<std::vector<File>>;

  // `since_s`: when the recording began (CLOCK_REALTIME).
  UnmappedReader(BackingResolver& resolver, double since_s) : resolver_(&resolver), since_s_(since_s) {}

  // Readings come every 0.1 s, every 0.4 s while nothing changes, and take at most 0.25 % of a core; 5 % while the
  // shared memory of the processes' memory cgroup grows fast.
  [[nodiscard]] bool is_due(std::int64_t now_ns, std::int64_t group_bytes);
  // Reads what is there now: what has changed since the last reading, by process. Those of `living` may end meanwhile.
  std::vector<std::pair<ProcessKey, Files>> read(std::vector<Process> living);
  // Files with a name and System V segments that are there when all processes have ended, as seen from here.
  LeftFiles left_behind();
  // A call of `process` has made the file, or mapped it. What is not found in /dev/shm at the next reading is gone.
  void note_made(const SharedFileId& id, ProcessKey process);
  // Whether its end changes what is counted: something is counted at it, or will be when it is mapped no longer.
  [[nodiscard]] bool depends_on(ProcessKey key) const;

 private:
  struct Held {
    SharedFile file;
    ProcessKey process;  // at which it counts
  };
  using HeldFiles = std::map<SharedFileId, Held>;

  static constexpr std::int64_t kGapNs = 100'000'000;  // between two readings; it doubles while nothing changes

  static void add(HeldFiles& held, SharedFile&& file, ProcessKey process);
  [[nodiscard]] bool is_of_before(const SharedFile& file, double since_s) const;
  HeldFiles find_open(const std::vector<Process>& living);
  void add_named(const Process& first, HeldFiles& held);
  void add_segments(const std::vector<Process>& living, std::map<ProcessKey, std::vector<File>>& found) const;
  static std::map<ProcessKey, std::vector<File>> count(const std::vector<Process>& living, const HeldFiles& held);

  BackingResolver* resolver_;
  double since_s_;
  std::int64_t next_ns_ = 0, gap_ns_ = kGapNs;
  std::int64_t next_grown_ns_ = 0;           // when it has grown so much
  std::int64_t group_bytes_ = 0;             // when a reading was due last
  HeldFiles known_;                          // at the last reading
  std::set<ProcessKey> unreadable_;          // at the last reading
  std::map<SharedFileId, ProcessKey> made_;  // by whom
  std::set<ProcessKey> made_by_;             // who has made one of those
  std::map<pid_t, ProcessKey> seen_pids_;    // of the living, and of those before them
  std::map<ProcessKey, Files> reported_;     // of the living
  ProcessKey first_{};                       // of them, where what the others leave is counted
};

// Of an `unmapped` frame.
nlohmann::json unmapped_payload(const UnmappedReader::Files& files);

}  // namespace whyrss
