// What the kernel's log says of processes of a recording that it killed for lack of memory.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/account.h"

namespace whyrss {

// A line of the log, at CLOCK_MONOTONIC.
struct OomLogLine {
  std::int64_t time_ns = 0;
  std::string text;
};

// As `ended` frames hold them; what is nonsense is left out.
std::vector<OomLogLine> oom_log(const nlohmann::json& ended);

// One entry per process that was killed, by time. `origin_ns` is 0 s.
std::vector<OomKill> oom_kills(const std::vector<OomLogLine>& words, std::uint64_t origin_ns);

// What no collector could tell, as it was killed too or saw no process: the log of this machine as it is now, of these
// processes, from `origin_ns` to `until_ns`. Only of recordings that were made since the machine was booted. Nothing:
// it may not be read, or has other numbers of processes.
std::optional<std::vector<OomKill>> oom_kills_in_log(const std::vector<int>& pids, std::uint64_t origin_ns,
                                                     std::uint64_t until_ns);

}  // namespace whyrss
