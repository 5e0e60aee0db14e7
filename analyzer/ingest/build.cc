#include "ingest/build.h"

#include <algorithm>

#include "ingest/page_frames.h"
#include "ingest/replay.h"

namespace whyrss {
namespace {

RecordingInfo info_of(const Manifest& manifest) {
  RecordingInfo info;
  info.host = manifest.host;
  info.session = manifest.session;
  info.command = manifest.command;
  info.started = manifest.started;
  info.mode = manifest.mode;
  info.complete = manifest.state == "complete";
  constexpr std::string_view kIncomplete = "incomplete: ";
  if (manifest.state.starts_with(kIncomplete)) info.incomplete_why = manifest.state.substr(kIncomplete.size());
  info.exit_code = manifest.exit_code;
  info.exit_signal = manifest.exit_signal;
  info.capabilities = manifest.capabilities;
  return info;
}

void add_cgroup(const CgroupFacts& facts, RecordingInfo& info) {
  if (facts.limit_bytes)
    info.cgroup_limit_bytes = std::min(info.cgroup_limit_bytes.value_or(*facts.limit_bytes), *facts.limit_bytes);
  if (facts.peak_bytes) info.cgroup_peak_bytes = std::max(info.cgroup_peak_bytes.value_or(0), *facts.peak_bytes);
  const bool kills = facts.oom_kills_first && facts.oom_kills_last && *facts.oom_kills_last > *facts.oom_kills_first;
  if (kills && info.exit_signal == "SIGKILL") info.oom_killed = true;
}

std::uint64_t lost_events(const ProcessInput& input, std::int64_t dropped_records) {
  const auto dropped = static_cast<std::uint64_t>(std::max<std::int64_t>(dropped_records, 0));
  return std::max(dropped, input.stream.lost_records()) + input.stream.damaged_records() +
         input.stream.untimed_records() + input.stream.unreadable_records();
}

// Looks that the process asked for at its end, and did not get.
std::uint64_t looks_missed(const ProcessAccount& account) {
  const auto found = account.counters.find("looks_missed");
  return found == account.counters.end() ? 0 : static_cast<std::uint64_t>(std::max<std::int64_t>(found->second, 0));
}

}  // namespace

RecordingAccount build_account(const Manifest& manifest, std::vector<std::unique_ptr<ProcessInput>>& inputs) {
  const auto origin_ns = static_cast<std::uint64_t>(manifest.started_ns);
  RecordingAccount recording;
  recording.info = info_of(manifest);
  recording.processes.resize(inputs.size());
  Replay replay({.origin_ns = origin_ns, .pool_path = manifest.pool_path, .see_evidence = {}}, recording.stacks);
  std::uint64_t last_ns = origin_ns;
  std::vector<std::int64_t> dropped_records;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ProcessInput& input = *inputs[i];
    input.open_events();
    PageFrames pages = read_page_frames(input.pages.frames, origin_ns);
    ProcessAccount& account = recording.processes[i];
    account = std::move(pages.account);
    account.pid = static_cast<int>(input.pid);
    for (const std::string& note : input.notes) account.notes.push_back(note);
    if (recording.info.complete && (!input.notes.empty() || pages.damaged_frames > 0)) {
      recording.info.complete = false;
      recording.info.incomplete_why = "some of its files are damaged";
    }
    if (pages.damaged_frames > 0)
      account.notes.push_back("pages.zst: " + std::to_string(pages.damaged_frames) + " frames are damaged");
    if (pages.ended_ns) account.ended_s = seconds_since(origin_ns, *pages.ended_ns);
    add_cgroup(pages.cgroup, recording.info);
    dropped_records.push_back(std::max(pages.dropped_records, input.dropped_records));
    last_ns = std::max(last_ns, pages.last_ns);
    replay.add(input, account);
    const auto first_event_ns = replay.first_event_ns(i);
    const std::uint64_t born_ns = std::min(pages.born_ns.value_or(UINT64_MAX), first_event_ns.value_or(UINT64_MAX));
    if (born_ns != UINT64_MAX) account.born_s = std::max(0.0, seconds_since(origin_ns, born_ns));
  }
  replay.run();
  recording.phases = replay.phases();
  recording.marks = replay.marks();
  const bool touch = std::ranges::any_of(recording.processes, [](const auto& process) { return process.touch.armed; });
  recording.info.capabilities["touch"] = touch ? "user" : "none";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ProcessAccount& account = recording.processes[i];
    account.lost_events = lost_events(*inputs[i], dropped_records[i]);
    recording.info.lost_events += account.lost_events;
    const std::uint64_t missed = looks_missed(account);
    recording.info.lost_snapshots += account.accounts.empty() ? std::max<std::uint64_t>(missed, 1) : missed;
    if (missed > 0) account.notes.emplace_back("its last look came too late: what it did at its end is not seen");
    for (const RssPoint& point : account.polls)
      account.high_water_bytes = std::max(account.high_water_bytes, point.rss_bytes);
    for (const Account& at : account.accounts)
      account.high_water_bytes = std::max(account.high_water_bytes, at.rss_bytes);
  }
  const auto dropped = static_cast<std::uint64_t>(std::max<std::int64_t>(manifest.dropped_records, 0));
  recording.info.lost_events = std::max(recording.info.lost_events, dropped);
  const std::uint64_t end_ns = manifest.ended_ns > manifest.started_ns ? static_cast<std::uint64_t>(manifest.ended_ns)
                                                                       : std::max(last_ns, replay.last_ns());
  recording.info.duration_s = std::max(0.0, seconds_since(origin_ns, end_ns));
  std::ranges::stable_sort(recording.processes, [&](const ProcessAccount& a, const ProcessAccount& b) {
    const bool a_main = a.pid == manifest.target_pid;
    const bool b_main = b.pid == manifest.target_pid;
    return a_main != b_main ? a_main : a.born_s < b.born_s;
  });
  return recording;
}

}  // namespace whyrss
