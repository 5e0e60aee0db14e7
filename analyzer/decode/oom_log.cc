#include "decode/oom_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "decode/json_values.h"
#include "decode/page_frames.h"
#include "procfs/oom_log.h"
#include "support/kernel_log.h"

namespace whyrss {
namespace {

// The log's clock is not quite CLOCK_MONOTONIC.
constexpr std::int64_t kClockErrorNs = 1'000'000'000;

// What the lines before a kill say of its cgroup.
struct GroupLines {
  OomLine last;  // of each figure the last one

  void add(const OomLine& line) {
    if (line.kind == OomLine::Kind::usage) last = line;
    if (line.group_anon_bytes) last.group_anon_bytes = line.group_anon_bytes;
    if (line.group_shmem_bytes) last.group_shmem_bytes = line.group_shmem_bytes;
    if (line.group_cache_bytes) last.group_cache_bytes = line.group_cache_bytes;
  }

  // Of the kill that follows, and of no other.
  void give_to(OomKill& kill) {
    const OomLine line = std::exchange(last, {});
    if (line.kind != OomLine::Kind::usage || !line.group_anon_bytes || !line.group_shmem_bytes) return;
    CgroupReading& reading = kill.group_reading.emplace();
    reading.time_s = kill.time_s;
    reading.anon_bytes = line.group_anon_bytes;
    reading.shmem_bytes = line.group_shmem_bytes;
    if (line.group_cache_bytes)  // the kernel's has shared memory in it
      reading.file_bytes = std::max<std::int64_t>(0, *line.group_cache_bytes - *line.group_shmem_bytes);
    kill.group_limit_bytes = line.limit_bytes;
  }
};

}  // namespace

std::vector<OomLogLine> oom_log(const nlohmann::json& ended) {
  std::vector<OomLogLine> words;
  const auto found = ended.find("kernel");
  if (found == ended.end() || !found->is_array()) return words;
  for (const nlohmann::json& line : *found) {
    const auto time_ns = line.is_object() ? json_integer(line, "time_ns") : std::nullopt;
    if (time_ns && *time_ns > 0) words.push_back({*time_ns, json_text(line, "text")});
  }
  return words;
}

std::vector<OomKill> oom_kills(const std::vector<OomLogLine>& words, std::uint64_t origin_ns) {
  std::vector<OomKill> kills;
  GroupLines group;
  for (const OomLogLine& word : words) {
    const OomLine parsed = parse_oom_line(word.text);
    group.add(parsed);
    if (parsed.pid == 0) continue;
    auto kill = std::ranges::find(kills, parsed.pid, &OomKill::pid);
    if (kill == kills.end()) {
      kill = kills.insert(kills.end(), OomKill{});
      kill->pid = parsed.pid;
      kill->time_s = std::max(0.0, seconds_since(origin_ns, static_cast<std::uint64_t>(word.time_ns)));
    }
    kill->at_limit = parsed.at_limit;
    if (parsed.kind == OomLine::Kind::chosen) {
      kill->group = parsed.group;
      group.give_to(*kill);
      if (kill->line.empty()) kill->line = word.text;
      continue;
    }
    kill->anon_bytes = parsed.anon_bytes;
    kill->file_bytes = parsed.file_bytes;
    kill->shmem_bytes = parsed.shmem_bytes;
    kill->line = word.text;
  }
  return kills;
}

std::optional<std::vector<OomKill>> oom_kills_in_log(const std::vector<int>& pids, std::uint64_t origin_ns,
                                                     std::uint64_t until_ns) {
  std::vector<OomLogLine> words;
  if (!kernel_log_has_our_pids()) return std::nullopt;
  KernelLog log = KernelLog::open(KernelLog::From::begin);
  if (!log.is_open()) return std::nullopt;
  for (const KernelLine& line : log.read_new()) {
    const std::int64_t time_ns = line.time_us * 1000;
    if (time_ns + kClockErrorNs < static_cast<std::int64_t>(origin_ns)) continue;
    if (time_ns - kClockErrorNs > static_cast<std::int64_t>(until_ns)) break;  // others may have the numbers by now
    if (parse_oom_line(line.text).kind != OomLine::Kind::none) words.push_back({time_ns, line.text});
  }
  std::vector<OomKill> kills = oom_kills(words, origin_ns);
  std::erase_if(kills, [&](const OomKill& kill) { return std::ranges::find(pids, kill.pid) == pids.end(); });
  return kills;
}

}  // namespace whyrss
