// All that the report of a job shows, computed once for its formats. Sizes are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/part.h"

namespace whyrss {

// A figure over processes. Of the median, the lower one in the middle of an even number.
struct Spread {
  std::int64_t min = 0, median = 0, p95 = 0, max = 0, sum = 0;
};

// Which process: its block in the part, and its place there.
struct ProcessPlace {
  std::size_t recording = 0, process = 0;
  friend bool operator==(const ProcessPlace&, const ProcessPlace&) = default;
};

// Names one process of a job.
struct ProcessLabel {
  ProcessPlace place{};
  std::int64_t pid = 0;
  std::optional<std::int64_t> rank{};
  std::string node{};
};

struct GroupCause {
  Cause cause = Cause::unknown;
  Spread at_peak{};  // of all processes of the group, at the peak of each
  // Lines that processes do not list: what one line may have, at most, and what all have together.
  std::int64_t line_error = 0, unlisted = 0;
};

struct GroupLine {
  Cause cause = Cause::unknown;
  JobLine line{};
  std::size_t process_count = 0;         // that list it
  std::int64_t sum = 0, growth_sum = 0;  // at the peak of each; over its life
  std::int64_t most = 0;                 // of one process
  std::int64_t median = 0, p95 = 0;      // of all processes of the group, to 1 %
  // What processes that do not list it may have of it, at most.
  std::int64_t error = 0;
  double variance = 0;  // of what is sampled of `sum`
};

struct GroupVerdict {
  std::string id{};
  Severity severity = Severity::info;
  std::size_t process_count = 0;
  std::vector<std::int64_t> ranks{};
  Spread bytes{};
  std::string headline{};  // of the process with the most
  ProcessLabel most{};
};

// One that is far from the others of its group.
struct Outlier {
  ProcessLabel process{};
  std::size_t group = 0;
  std::int64_t rss_peak = 0;
  std::int64_t held = 0, median = 0;  // at its peak, without what it shares since a fork; of its group
  // What it has most of beyond the median of its group; the cause alone where no line is known.
  Cause cause = Cause::unknown;
  JobLine line{};
  std::int64_t line_bytes = 0, line_median = 0;
  bool has_line = false;
};

// Processes alike: of one name; those that one of the same name and rank has started are a group of their own.
struct JobGroup {
  std::string name{};
  bool is_worker = false;  // started by one of its name
  std::size_t process_count = 0;
  std::vector<std::int64_t> ranks{};  // sorted, each once
  Spread rss_peak{}, rss_last{};
  ProcessLabel largest{};
  std::int64_t p50_by_time = 0, p95_by_time = 0, p99_by_time = 0;  // RSS of a moment of its processes' lives, to 1 %
  std::vector<GroupCause> causes{};                                // largest sum first
  std::vector<GroupLine> lines{};                                  // largest sum first
  std::vector<GroupVerdict> verdicts{};                            // most severe first
};

// One kernel: what runs on it shares its memory and its clock.
struct NodeSum {
  std::string name{}, boot_id{};
  std::vector<std::string> hosts{};   // names that its recordings give it: those of containers
  std::vector<std::int64_t> ranks{};  // sorted, each once
  std::size_t recording_count = 0, process_count = 0;
  // At the moment when its processes had most of their own: without files, shared memory and what forks share.
  std::int64_t private_peak = 0;
  std::int64_t files_once = 0, shared_once = 0;  // each file counted once, with the most that one process mapped
  std::int64_t rss_sum_peak = 0;                 // as tools add it up: shared pages count in every process
  // The peaks of its processes; of those whose PSS was not read RSS, which PSS does not exceed.
  std::int64_t rss_peaks = 0, pss_peaks = 0, without_pss = 0;
  std::optional<std::int64_t> limit{}, group_peak{};
  bool limit_is_group = false;  // a cgroup's, else the machine's memory
  std::size_t oom_killed = 0;
  std::string started{};      // of its first recording
  std::int64_t begin_ns = 0;  // the same on its own clock
  double length_ms = 0;       // from then to the end of its last one
  [[nodiscard]] std::int64_t total() const { return private_peak + files_once + shared_once; }
};

// A file that processes map, over all nodes.
struct SharedFile {
  std::string mapping{};
  std::size_t node_count = 0, process_count = 0;
  std::int64_t rss_sum = 0;  // as each process counts it
  std::int64_t once = 0;     // once a node
};

// All that the part keeps of one process.
struct ProcessDetail {
  ProcessLabel label{};
  ReducedProcess process;
  std::vector<JobLine> lines{};  // of each of process.lines
};

struct JobView {
  std::string path{};
  std::vector<std::string> jobs{}, versions{};  // sorted, each once
  std::string started{};                        // the earliest
  std::size_t recording_count = 0, complete_count = 0, process_count = 0;
  std::uint64_t lost_events = 0, lost_snapshots = 0;
  std::optional<std::int64_t> world_size{};
  std::vector<std::int64_t> ranks{}, missing_ranks{};  // sorted, each once
  std::optional<std::size_t> expected_nodes{};
  std::vector<std::string> missing_nodes{};  // by name, where names are known
  std::vector<std::string> notes{};
  std::vector<Outlier> outliers{};         // largest first
  std::vector<JobGroup> groups{};          // largest sum of peaks first
  std::vector<NodeSum> nodes{};            // nearest to the limit first
  std::vector<SharedFile> files{};         // largest sum first
  std::vector<ProcessDetail> processes{};  // as many as were asked for, largest peak first
};

}  // namespace whyrss
