// Everything in pages.zst but the walks: polls, totals of the kernel, what the collector wrote down.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/account.h"
#include "recording/frame_file.h"

namespace whyrss {

// The last program that the collector saw in a process.
struct SeenProgram {
  std::uint64_t time_ns = 0;
  std::vector<std::string> command;
  std::string exe;
  std::map<std::string, std::string> environment;
  std::string preload, unfit;  // as the frame says; "": it does not
};

struct PageFrames {
  ProcessAccount account;  // born_s, ended_s: only if recorded
  std::optional<std::uint64_t> born_ns, ended_ns;
  std::optional<int> exit_status;  // none: killed, or not known
  std::optional<SeenProgram> program;
  std::int64_t dropped_records = 0;
  std::optional<CgroupAccount> cgroup;
  std::vector<OomKill> oom_kills;
  std::int64_t max_rss_bytes = 0;  // ru_maxrss, of the command alone; 0: not known
  std::uint64_t last_ns = 0;       // of any frame
  std::size_t damaged_frames = 0;  // unreadable payloads
};

// `origin_ns` is 0 s.
PageFrames read_page_frames(const std::vector<RawFrame>& frames, std::uint64_t origin_ns);

inline double seconds_since(std::uint64_t origin_ns, std::uint64_t time_ns) {
  return static_cast<double>(static_cast<std::int64_t>(time_ns - origin_ns)) / 1e9;
}

// The way back; what is before the origin is at it.
inline std::uint64_t time_ns_at(std::uint64_t origin_ns, double seconds) {
  return origin_ns + static_cast<std::uint64_t>(std::max(seconds, 0.0) * 1e9);
}

}  // namespace whyrss
