// What a part of a job holds: of each recording what its report says, in a bounded size. Sizes are bytes.
//
// A part is a set of recordings. Merging is the union of such sets: each recording is reduced once, and no merge
// changes or truncates what was kept of it. So the order and the tree of merges do not matter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/log_sketch.h"
#include "model/cause.h"
#include "report/verdicts/verdict.h"

namespace whyrss {

// A process takes so much of a part at most, before compression: its strings, lines, moments and verdicts.
inline constexpr std::size_t kMostProcessBytes = 64 * 1024;
inline constexpr std::size_t kMostLines = 100;          // the largest of a process, over all of its causes
inline constexpr std::size_t kMostMoments = 64;         // of a process
inline constexpr std::size_t kMostProcessVerdicts = 8;  // most severe first
inline constexpr std::size_t kMostTextBytes = 256;      // of a name; longer ones are shortened

// The line to blame, as reports write it, and of files and shared memory what is mapped.
struct JobLine {
  std::string text{};     // "cache.py:11 in load"; "": no call recorded
  std::string file{};     // full path of the line's file, "" if not known
  std::string mapping{};  // of file_cache, file_cow, shared_memory and device
  friend auto operator<=>(const JobLine&, const JobLine&) = default;
};

struct LineFigures {
  Cause cause = Cause::unknown;
  std::uint32_t line = 0;  // in ReducedRecording::lines
  std::int64_t growth = 0, resident = 0, at_peak = 0;
  std::int64_t error_kib = 0;  // standard error of an estimate, rounded up; 0: exact, or of a whyrss before that
  friend bool operator==(const LineFigures&, const LineFigures&) = default;
};

struct CauseFigures {
  Cause cause = Cause::unknown;
  std::int64_t first = 0, last = 0, peak = 0, at_peak = 0;
  std::int64_t sole_owner = 0;  // of fork_shared: bytes that no other process maps any more
  // Of the lines that are not listed: their number and sums, and what the largest of them has of any figure. A line
  // that is not listed has no more than that: the error of a sum over processes.
  std::uint64_t omitted = 0;
  std::int64_t omitted_growth = 0, omitted_resident = 0, omitted_at_peak = 0, omitted_most = 0;
  friend bool operator==(const CauseFigures&, const CauseFigures&) = default;
};

// The state at one snapshot.
struct MemoryMoment {
  std::int64_t time_ms = 0;  // since the recording began
  std::array<std::int64_t, kCauseCount> bytes{};
  friend bool operator==(const MemoryMoment&, const MemoryMoment&) = default;
};

struct ReducedVerdict {
  std::string id{};
  Severity severity = Severity::info;
  std::int64_t bytes = 0;
  std::string headline{};
  friend bool operator==(const ReducedVerdict&, const ReducedVerdict&) = default;
};

struct ReducedProcess {
  std::int64_t pid = 0, parent = 0;  // parent 0: not known
  std::string name{};                // "train.py"
  std::int64_t born_ms = 0;
  std::optional<std::int64_t> ended_ms{};
  bool born_by_fork = false, traced = false, walked = false, oom_killed = false;
  std::string end_signal{};  // "" by none
  std::optional<std::int64_t> rank{}, local_rank{}, world_size{};
  std::int64_t rss_first = 0, rss_last = 0, rss_peak = 0, high_water = 0;
  std::optional<std::int64_t> pss_peak{};
  std::int64_t copied = 0;                 // of what a fork made shared
  std::vector<CauseFigures> causes{};      // by cause; they sum to RSS
  std::vector<LineFigures> lines{};        // largest first
  std::vector<MemoryMoment> moments{};     // by time: the first, the last, the fullest of each stretch between
  LogSketch rss_by_time{};                 // weights are milliseconds
  std::vector<ReducedVerdict> verdicts{};  // most severe first
  friend bool operator==(const ReducedProcess&, const ReducedProcess&) = default;
};

struct ReducedRecording {
  std::string session{}, host{}, boot_id{}, node{}, job{}, version{};  // node: as the job's launcher names it
  std::string started{};                                               // RFC 3339, the wall time of 0
  std::int64_t started_ns = 0;                                         // of the node's own clock (CLOCK_MONOTONIC)
  std::int64_t duration_ms = 0;
  std::string mode{}, incomplete_why{};
  bool complete = false, oom_killed = false;
  std::optional<std::int64_t> exit_code{};
  std::string exit_signal{};
  std::uint64_t lost_events = 0, lost_snapshots = 0;
  std::int64_t memory_total = 0;  // of the machine, 0: not known
  std::string group_path{};       // the memory cgroup with the smallest limit
  std::optional<std::int64_t> group_limit{}, group_peak{};
  std::vector<JobLine> lines{};
  std::vector<ReducedProcess> processes{};
  friend bool operator==(const ReducedRecording&, const ReducedRecording&) = default;
};

// What the index of a part says of a recording: all that a merge needs.
struct PartEntry {
  std::string boot_id{}, host{}, session{};  // which recording it is, and the order in the file
  std::string node{}, job{}, version{};
  bool complete = false;
  std::uint64_t duration_ms = 0, processes = 0;
  std::uint64_t stored_bytes = 0, raw_bytes = 0;  // of its block, compressed and not
  std::uint64_t checksum = 0;                     // of the stored bytes
  friend bool operator==(const PartEntry&, const PartEntry&) = default;
};

struct PartIndex {
  // Nodes that the job should have: lists as Slurm writes them, or a number; sorted, each once.
  std::vector<std::string> node_lists{};
  std::vector<PartEntry> entries{};  // in their order, each recording once
  friend bool operator==(const PartIndex&, const PartIndex&) = default;
};

}  // namespace whyrss
