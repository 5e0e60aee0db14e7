#include "replay/kill_judgement.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace whyrss {
namespace {

// The counter rises a moment before the victim is gone, and that is seen a moment later.
constexpr double kEndS = 1;

// The group as it was right after the end: read as that was noted, however long the disk took meanwhile, else by
// another process that ended later. An ordinary reading counts only near the end: whatever rose by then may have risen
// since.
const CgroupReading* reading_at_end(const CgroupAccount& group, double end_s) {
  const CgroupReading* at_end = nullptr;
  for (const CgroupReading& reading : group.readings) {
    if (!reading.oom_kills) continue;
    const bool is_later = at_end != nullptr && reading.time_s > end_s;
    if (is_later && (at_end->after_end || (!reading.after_end && reading.time_s > end_s + kEndS))) break;
    at_end = &reading;
    if (reading.after_end && reading.time_s > end_s) break;
  }
  return at_end;
}

// Kills in the group while the process ended; nothing where they were not counted.
std::optional<std::int64_t> kills_at(const CgroupAccount& group, double end_s) {
  const CgroupReading* const at_end = reading_at_end(group, end_s);
  if (at_end == nullptr) return std::nullopt;
  std::optional<std::int64_t> before;
  if (group.made_by_record) before = 0;
  for (const CgroupReading* reading = group.readings.data(); reading != at_end; ++reading)
    if (reading->oom_kills && (!before || reading->time_s <= end_s - kEndS)) before = reading->oom_kills;
  return *at_end->oom_kills - before.value_or(*at_end->oom_kills);
}

// Of the recording; other processes of the group are not known.
bool others_were_killed(const RecordingAccount& recording, const ProcessAccount* main, double end_s) {
  return std::ranges::any_of(recording.processes, [&](const ProcessAccount& process) {
    return &process != main && process.end_signal == "SIGKILL" && process.ended_s &&
           std::abs(*process.ended_s - end_s) <= kEndS;
  });
}

// How a process ended that its parent reaped at once is not known: it may have been killed.
bool no_other_can_have_been_killed(const RecordingAccount& recording, const ProcessAccount* main) {
  return std::ranges::none_of(recording.processes, [&](const ProcessAccount& process) {
    return &process != main && process.ended_s && (process.end_signal.empty() || process.end_signal == "SIGKILL");
  });
}

}  // namespace

void judge_kill(std::int64_t group_kills, std::int64_t main_pid, RecordingAccount& recording) {
  RecordingInfo& info = recording.info;
  if (info.exit_signal != "SIGKILL") return;
  const bool has_main = !recording.processes.empty() && recording.processes.front().pid == main_pid;
  const ProcessAccount* const main = has_main ? &recording.processes.front() : nullptr;
  if (main != nullptr && std::ranges::find(info.oom_kills, main->pid, &OomKill::pid) != info.oom_kills.end()) {
    info.oom_killed = true;
    return;
  }
  // The log has a line for each kill.
  const auto log = info.capabilities.find("kernel_log");
  if (main != nullptr && log != info.capabilities.end() && log->second == "yes") return;
  const double end_s = main != nullptr ? main->ended_s.value_or(info.duration_s) : info.duration_s;
  const bool is_ours = info.cgroup && info.cgroup->made_by_record;
  const auto counted = info.cgroup ? kills_at(*info.cgroup, end_s) : std::nullopt;
  // A large process dies slowly: the counter may have risen long before it was gone.
  const bool rose_at_end = counted.value_or(1) > 0;
  const bool is_of_ours = is_ours && group_kills > 0 && (rose_at_end || no_other_can_have_been_killed(recording, main));
  info.oom_killed = counted.value_or(0) > 0 || is_of_ours;
  const bool is_certain = is_ours && rose_at_end && !others_were_killed(recording, main, end_s);
  info.oom_kill_probable = info.oom_killed && !is_certain;
}

}  // namespace whyrss
