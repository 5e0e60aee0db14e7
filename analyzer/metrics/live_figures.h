// What is known of a process tree while it is recorded. A figure that cannot be had is absent: never 0, never an old
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace whyrss {

// Processes with figures of their own: the largest. So many series a scrape, however many processes there are.
inline constexpr std::size_t kMostProcesses = 64;

struct ProcessFigures {
  std::uint32_t pid = 0;  // as the process itself sees it
  double born_s = 0;      // since the recording began
  std::string label;      // "train.py (pid 4711)"
  std::optional<std::int64_t> rss_bytes{}, rss_peak_bytes{};
  std::optional<std::int64_t> anon_bytes{}, file_bytes{}, shmem_bytes{};  // the kernel's parts of RSS
  std::optional<std::int64_t> pss_bytes{}, uss_bytes{}, swap_bytes{};
  std::optional<std::int64_t> heap_net_bytes{};
};

// All others together.
struct OtherFigures {
  std::int64_t process_count = 0;
  std::int64_t rss_bytes = 0;
  std::optional<std::int64_t> heap_net_bytes{};  // where it is known of each
};

struct GroupFigures {
  std::string path;
  std::optional<std::int64_t> usage_bytes{}, peak_bytes{}, limit_bytes{};
};

struct LiveFigures {
  std::string host, recording;
  double recorded_s = 0, collector_cpu_s = 0;
  std::vector<ProcessFigures> processes;
  OtherFigures others;
  std::int64_t seen_processes = 0;  // since the recording began
  std::int64_t dropped_events = 0, missed_snapshots = 0, recording_bytes = 0;
  std::optional<GroupFigures> group;
};

}  // namespace whyrss
