#include "load/build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "attribute/program_code.h"
#include "decode/cgroup_frames.h"
#include "decode/page_frames.h"
#include "load/recording_check.h"
#include "load/unmapped_readings.h"
#include "replay/high_water.h"
#include "replay/kill_judgement.h"
#include "replay/replay.h"

namespace whyrss {
namespace {

RecordingInfo info_of(const Manifest& manifest) {
  RecordingInfo info;
  info.host = manifest.host;
  info.boot_id = manifest.boot_id;
  info.version = manifest.version;
  info.session = manifest.session;
  info.command = manifest.command;
  info.started = manifest.started;
  info.started_monotonic_ns = manifest.started_ns;
  info.mode = manifest.mode;
  info.complete = manifest.state == "complete";
  constexpr std::string_view kIncomplete = "incomplete: ";
  if (manifest.state.starts_with(kIncomplete)) info.incomplete_why = manifest.state.substr(kIncomplete.size());
  info.exit_code = manifest.exit_code;
  info.exit_signal = manifest.exit_signal;
  info.capabilities = manifest.capabilities;
  info.collector_cpu_s = manifest.collector_cpu_s;
  if (manifest.overhead_percent > 0) info.overhead_percent = manifest.overhead_percent;
  info.notes = manifest.notes;
  if (manifest.memory_total_bytes > 0) info.memory_total_bytes = manifest.memory_total_bytes;
  return info;
}

std::uint64_t at_least_none(std::int64_t count) { return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)); }

void add_write_faults(const Manifest& manifest, RecordingInfo& info) {
  for (const WriteFault& fault : manifest.write_faults) {
    info.notes.push_back(describe(fault, manifest.started_ns));
    info.lost_events += at_least_none(fault.events);
    info.lost_snapshots += at_least_none(fault.walks);
  }
}

// The collector stores the end of a process before it says in the manifest how the main one ended, and may be killed in
// between.
void take_end(const PageFrames& pages, const ProcessAccount& main, RecordingInfo& info) {
  if (info.exit_code || info.exit_signal) return;
  info.exit_code = pages.exit_status;
  if (!main.end_signal.empty()) info.exit_signal = main.end_signal;
}

std::uint64_t lost_events(const ProcessInput& input, std::int64_t dropped_records) {
  const auto dropped = static_cast<std::uint64_t>(std::max<std::int64_t>(dropped_records, 0));
  return std::max(dropped, input.stream.lost_records()) + input.stream.damaged_records() +
         input.stream.untimed_records() + input.stream.unreadable_records();
}

// Walks that the process asked for at its end, and did not get.
std::uint64_t walks_missed(const ProcessAccount& account) {
  const auto found = account.counters.find("looks_missed");
  return found == account.counters.end() ? 0 : static_cast<std::uint64_t>(std::max<std::int64_t>(found->second, 0));
}

// What a process took since it was polled last is known of those that the kernel killed for lack of memory.
std::optional<trace::Poll> size_at_kill(const PageFrames& pages, int pid) {
  constexpr std::int64_t kPageBytes = 4096;
  const auto kill = std::ranges::find(pages.oom_kills, pid, &OomKill::pid);
  if (kill == pages.oom_kills.end() || !pages.ended_ns) return std::nullopt;
  const auto pages_of = [](std::int64_t bytes) {
    return static_cast<std::uint64_t>(std::clamp<std::int64_t>(bytes, 0, std::int64_t{1} << 44) / kPageBytes);
  };
  const std::uint64_t shared = pages_of(kill->file_bytes) + pages_of(kill->shmem_bytes);
  return trace::Poll{.time_ns = *pages.ended_ns,
                     .rss_pages = pages_of(kill->anon_bytes) + shared,
                     .shared_pages = shared,
                     .minor_faults = 0,
                     .major_faults = 0};
}

// How much of the work is done when all events were read once; the rest is to play them.
constexpr double kOpened = 0.3;

// What a part of the work, from `from` to `to` of it, tells `progress`.
std::function<void(double)> part_of(const std::function<void(double)>& progress, double from, double to) {
  if (!progress) return {};
  return [&progress, from, to](double done) { progress(from + done * (to - from)); };
}

std::uint64_t stored_bytes(const std::vector<std::unique_ptr<ProcessInput>>& inputs) {
  std::uint64_t sum = 1;
  for (const auto& input : inputs)
    for (const RawFrame& frame : input->events.frames) sum += frame.stored_bytes;
  return sum;
}

struct UntracedReason {
  std::string reason, advice;
  [[nodiscard]] std::string note() const { return advice.empty() ? reason : reason + ": " + advice; }
};

UntracedReason untraced_reason(const SeenProgram& program) {
  if (!program.unfit.empty()) return {"it " + program.unfit, ""};
  if (program.preload == "none")
    return {"its environment has no LD_PRELOAD",
            "have what clears it keep LD_PRELOAD and WHYRSS_SESSION, or set what `whyrss env` prints"};
  if (program.preload == "other")
    return {"LD_PRELOAD of its environment lacks libwhyrss.so",
            "have what sets it keep what stood there (LD_PRELOAD=$LD_PRELOAD:...)"};
  if (program.preload.empty()) return {"why is not known", ""};
  return {"libwhyrss.so stands in LD_PRELOAD of its environment, but nothing came from it", ""};
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// A process whose program is another one than the library was in, or that it never was in.
void name_untraced(const SeenProgram& seen, const std::optional<Replay::Untraced>& exec, std::uint64_t origin_ns,
                   ProcessAccount& account) {
  if (!exec) {
    if (account.traced) return;
    account.unfit = seen.unfit;
    if (seen.preload.empty()) return;
    const UntracedReason why = untraced_reason(seen);
    account.untraced_reason = why.reason;
    account.notes.push_back("not traced: " + why.note());
    return;
  }
  // Else it was short. The call is stamped before the kernel makes it: what is read meanwhile may be of the one before.
  const bool is_another = file_name(exec->program) != file_name(account.exe);
  const bool is_before = seen.command == account.command && (is_another || seen.exe == account.exe);
  const bool is_seen = seen.time_ns > exec->since_ns && !is_before;
  std::string before = fmt::format("{}", fmt::join(account.command, " "));
  constexpr std::size_t kShownBytes = 60;
  if (before.size() > kShownBytes) before = before.substr(0, kShownBytes - 3) + "...";
  const UntracedReason why = untraced_reason(is_seen ? seen : SeenProgram{});
  account.untraced_reason = why.reason;
  account.notes.push_back(fmt::format("not traced since {:.3f} s, when it was still \"{}\": {}",
                                      seconds_since(origin_ns, exec->since_ns), before, why.note()));
  account.traced = false;
  account.command = is_seen                 ? seen.command
                    : exec->program.empty() ? std::vector<std::string>{}
                                            : std::vector{exec->program};
  account.exe = is_seen ? seen.exe : exec->program;
  if (is_seen) account.environment = seen.environment;
  if (is_seen) account.unfit = seen.unfit;
  account.python.reset();
  account.allocator.clear();
}

// A program without our library does not say when it begins to end. What the kernel or its own exit frees within its
// last half second is no longer its work: the last poll before that fall counts as the moment.
std::optional<double> untraced_teardown_s(const ProcessAccount& account) {
  constexpr double kLastS = 0.5;
  constexpr std::int64_t kFallPart = 10;  // of its size, one in so many
  constexpr std::int64_t kFallBytes = 8LL << 20;
  if (account.traced || account.teardown_s || !account.ended_s || !account.end_signal.empty()) return std::nullopt;
  const std::vector<RssPoint>& polls = account.polls;
  if (polls.empty()) return std::nullopt;
  std::size_t full = polls.size() - 1;
  while (full > 0 && polls[full - 1].rss_bytes >= polls[full].rss_bytes &&
         *account.ended_s - polls[full - 1].time_s <= kLastS)
    --full;
  const std::int64_t fell = polls[full].rss_bytes - polls.back().rss_bytes;
  if (fell < kFallBytes || fell * kFallPart < polls[full].rss_bytes) return std::nullopt;
  return polls[full].time_s;
}

}  // namespace

RecordingAccount build_account(const Manifest& manifest, std::vector<std::unique_ptr<ProcessInput>>& inputs,
                               const BuildSettings& settings) {
  const auto origin_ns = static_cast<std::uint64_t>(manifest.started_ns);
  RecordingAccount recording;
  recording.info = info_of(manifest);
  recording.processes.resize(inputs.size());
  Replay replay({.origin_ns = origin_ns,
                 .pool_path = manifest.pool_path,
                 .see_evidence = {},
                 .until_ns = settings.until_ns,
                 .progress = part_of(settings.progress, kOpened, 1),
                 .pictures = settings.pictures,
                 .allocator_stacks = &recording.allocator_stacks},
                recording.stacks);
  const auto opened = part_of(settings.progress, 0, kOpened);
  const std::uint64_t all_bytes = stored_bytes(inputs);
  std::uint64_t open_bytes = 0;
  std::uint64_t last_ns = origin_ns;
  std::vector<std::int64_t> dropped_records;
  std::vector<std::string> damage;
  std::vector<std::optional<SeenProgram>> programs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ProcessInput& input = *inputs[i];
    input.open_events([&](std::uint64_t bytes) {
      open_bytes += bytes;
      if (opened) opened(static_cast<double>(open_bytes) / static_cast<double>(all_bytes));
    });
    PageFrames pages = read_page_frames(input.pages.frames, origin_ns);
    ProcessAccount& account = recording.processes[i];
    account = std::move(pages.account);
    account.pid = static_cast<int>(input.pid);
    if (pages.damaged_frames > 0)
      input.damage.push_back(
          fmt::format("{}/pages.zst: {} frames cannot be understood", input.directory, pages.damaged_frames));
    damage.insert(damage.end(), input.damage.begin(), input.damage.end());
    if (pages.ended_ns) account.ended_s = seconds_since(origin_ns, *pages.ended_ns);
    if (account.pid == manifest.target_pid) take_end(pages, account, recording.info);
    if (pages.cgroup) merge_cgroup(std::move(*pages.cgroup), recording.info.cgroup);
    for (OomKill& kill : pages.oom_kills) recording.info.oom_kills.push_back(std::move(kill));
    dropped_records.push_back(std::max(pages.dropped_records, input.dropped_records));
    last_ns = std::max(last_ns, pages.last_ns);
    programs.push_back(std::move(pages.program));
    replay.add(input, account, {.at_kill = size_at_kill(pages, account.pid), .max_rss_bytes = pages.max_rss_bytes});
    const auto first_event_ns = replay.first_event_ns(i);
    const std::uint64_t born_ns = std::min(pages.born_ns.value_or(UINT64_MAX), first_event_ns.value_or(UINT64_MAX));
    if (born_ns != UINT64_MAX) account.born_s = std::max(0.0, seconds_since(origin_ns, born_ns));
  }
  add_damage(damage, recording.info);
  if (manifest.group_limit_bytes && !recording.info.cgroup) {
    recording.info.cgroup.emplace().limit_bytes = manifest.group_limit_bytes;
    recording.info.cgroup->made_by_record = true;
  }
  std::ranges::stable_sort(recording.info.oom_kills, {}, &OomKill::time_s);
  replay.run();
  leave_out_mapped(recording.processes);
  if (recording.info.cgroup) {
    CgroupAccount& group = *recording.info.cgroup;
    settle_peak(group);
    for (const ProcessAccount& account : recording.processes)  // each may have lost the same pages
      group.seen_reclaimed_bytes = std::max(group.seen_reclaimed_bytes, account.file_bytes_gone);
  }
  std::set<std::string> package_folders;
  for (const ProcessAccount& account : recording.processes)
    package_folders.insert(account.package_folders.begin(), account.package_folders.end());
  recording.stacks.set_program_code(find_program_code(recording.stacks, package_folders));
  recording.phases = replay.phases();
  recording.marks = replay.marks();
  const bool touch = std::ranges::any_of(recording.processes, [](const auto& process) { return process.touch.armed; });
  recording.info.capabilities["touch"] = touch ? "user" : "none";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ProcessAccount& account = recording.processes[i];
    if (account.left_s && !account.totals.empty())
      account.left_s = std::max(*account.left_s, account.totals.back().time_s);
    name_untraced(programs[i].value_or(SeenProgram{}), replay.untraced(i), origin_ns, account);
    if (const auto teardown_s = untraced_teardown_s(account); teardown_s && !recording.info.exit_signal)
      account.teardown_s = teardown_s;
    account.lost_events = lost_events(*inputs[i], dropped_records[i]);
    recording.info.lost_events += account.lost_events;
    const std::uint64_t missed = walks_missed(account);
    recording.info.lost_snapshots += account.accounts.empty() ? std::max<std::uint64_t>(missed, 1) : missed;
    if (missed > 0)
      account.notes.emplace_back(
          "its last snapshot, or one that it requested, came too late: what it did before is not in the report");
    settle_high_water(account);
  }
  const auto dropped = static_cast<std::uint64_t>(std::max<std::int64_t>(manifest.dropped_records, 0));
  recording.info.lost_events = std::max(recording.info.lost_events, dropped);
  add_write_faults(manifest, recording.info);
  if (manifest.left_files)
    recording.info.left_files = LeftMemory{.count = manifest.left_files->count,
                                           .bytes = manifest.left_files->bytes,
                                           .largest = manifest.left_files->largest};
  const std::uint64_t end_ns = manifest.ended_ns > manifest.started_ns ? static_cast<std::uint64_t>(manifest.ended_ns)
                                                                       : std::max(last_ns, replay.last_ns());
  recording.info.duration_s = std::max(0.0, seconds_since(origin_ns, end_ns));
  std::ranges::stable_sort(recording.processes, [&](const ProcessAccount& a, const ProcessAccount& b) {
    const bool a_main = a.pid == manifest.target_pid;
    const bool b_main = b.pid == manifest.target_pid;
    return a_main != b_main ? a_main : a.born_s < b.born_s;
  });
  // Killed while it was started, it had none of its own yet.
  for (ProcessAccount& account : recording.processes)
    if (account.pid == manifest.target_pid && account.command.empty()) account.command = manifest.command;
  judge_kill(manifest.group_kills.value_or(0), manifest.target_pid, recording);
  return recording;
}

}  // namespace whyrss
