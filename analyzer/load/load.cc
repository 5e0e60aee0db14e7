#include "load/load.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "decode/oom_log.h"
#include "decode/process_input.h"
#include "load/build.h"
#include "load/live_pool.h"
#include "load/pool_rescue.h"
#include "load/process_files.h"
#include "load/recording_check.h"
#include "model/recording_state.h"
#include "procfs/process_stat.h"
#include "recording/manifest.h"
#include "recording/recording_folder.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

// glibc would keep what large tables leave behind when they grow, of which a report has many for a moment.
void give_back_large_blocks() {
  constexpr int kLargeBytes = 2 * 1024 * 1024;
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  mallopt(M_TRIM_THRESHOLD, kLargeBytes);
}

// Only a living collector holds the lock. Asking takes it for a moment, shared, and never waits.
bool collector_lives(const Folder& recording) {
  const auto lock = recording.open_file("lock");
  return lock && flock(lock->get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Of a job that was killed together with its collector, or before that could walk it.
void ask_the_kernel(const Manifest& manifest, RecordingAccount& recording) {
  // The collector stores what it has every second, unless the machine stands still for lack of memory.
  constexpr std::uint64_t kUnseenNs = 10'000'000'000;
  RecordingInfo& info = recording.info;
  std::vector<int> pids{static_cast<int>(manifest.target_pid)};
  for (const ProcessAccount& process : recording.processes) pids.push_back(process.pid);
  const auto started_ns = static_cast<std::uint64_t>(manifest.started_ns);
  constexpr double kLongestS = 1e9;  // what says more is damaged
  const auto lasted_ns = static_cast<std::uint64_t>(std::clamp(info.duration_s, 0.0, kLongestS) * 1e9);
  auto kills = oom_kills_in_log(pids, started_ns, started_ns + lasted_ns + kUnseenNs);
  // Only a reader of the recording can know what the log says of an end that no collector saw.
  if (!kills && manifest.state == "recording") info.capabilities["kernel_log"] = "it was not readable for this report";
  if (!kills || kills->empty()) return;  // what the collector saw before it ended stays
  info.oom_kills = std::move(*kills);
  if (std::ranges::find(info.oom_kills, pids.front(), &OomKill::pid) == info.oom_kills.end()) return;
  info.oom_killed = true;
  info.oom_kill_probable = false;
}

bool is_running(std::uint32_t pid, std::uint64_t start_ticks) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid));
  const auto stat = text ? parse_process_stat(*text) : std::nullopt;
  return stat && stat->start_ticks == start_ticks && !stat->has_ended();
}

// Of a recording that its collector did not close: whether the main process is gone without a word.
bool ended_unseen(const Manifest& manifest, const ProcessInputs& inputs, const RecordingAccount& recording) {
  constexpr double kTogetherS = 1;  // a collector that goes on for longer was not killed with it
  if (recording.processes.empty() || recording.info.exit_code || recording.info.exit_signal) return false;
  const ProcessAccount& main = recording.processes.front();
  if (main.pid != manifest.target_pid || main.has_left) return false;
  if (main.ended_s) return recording.info.duration_s - *main.ended_s < kTogetherS;
  return std::ranges::none_of(inputs, [&](const auto& one) {
    return std::cmp_equal(one->pid, main.pid) && is_running(one->pid, one->start_ticks);
  });
}

}  // namespace

Result<RecordingAccount> load_account(const std::string& recording_dir, const LoadSettings& settings) {
  const auto folder = open_recording(recording_dir);
  if (!folder) return Error{folder.error()};
  return load_account(*folder, settings);
}

Result<RecordingAccount> load_account(const Folder& folder, const LoadSettings& settings) {
  give_back_large_blocks();
  bool is_held = collector_lives(folder);
  auto manifest = read_manifest(folder);
  // It may have ended in between: what it left behind is known from what it wrote last.
  if (is_held && !collector_lives(folder)) {
    is_held = false;
    manifest = read_manifest(folder);
  }
  if (!manifest) return Error{manifest.error()};
  const bool this_boot = is_of_this_host(*manifest);
  const bool of_container = !this_boot && is_of_this_boot(*manifest);  // its lock is one of this kernel
  const bool closed = manifest->state == "complete";
  const bool running = !closed && is_held && (this_boot || of_container);
  const auto stored_ns = running && this_boot ? store_published(*manifest) : std::nullopt;
  const std::uint64_t until_ns = stored_ns.value_or(std::numeric_limits<std::uint64_t>::max());
  auto processes = read_processes(folder, *manifest, {trace::FileKind::events, trace::FileKind::pages});
  if (!processes) return Error{processes.error()};
  ProcessInputs& inputs = processes->inputs;

  // While the collector lives it recycles chunks under our hands.
  Leftovers leftovers;
  if (!closed && !running) leftovers = take_leftovers(folder, *manifest, this_boot);
  const std::uint64_t leftover_bytes = leftovers.pool ? leftovers.pool->add_to(inputs) : 0;
  RecordingAccount recording = build_account(*manifest, inputs, {until_ns, settings.progress, settings.pictures});
  RecordingInfo& info = recording.info;
  info.path = folder.path();
  add_damage(processes->damage, info);
  if (!leftovers.why_not.empty()) info.notes.push_back(leftovers.why_not);
  if (leftover_bytes > 0)
    info.notes.push_back(fmt::format("{} bytes of events that the collector had not stored", leftover_bytes));
  const bool unclosed = manifest->state == "recording" && !running;
  const bool orphaned = unclosed && this_boot;
  const bool counted = this_boot && manifest->group_kills.value_or(0) > 0 && info.oom_kills.empty();
  if (orphaned || counted) ask_the_kernel(*manifest, recording);
  info.end_unseen =
      (orphaned || (unclosed && of_container)) && !info.oom_killed && ended_unseen(*manifest, inputs, recording);
  if (running)
    info.incomplete_why = kStillRunning;
  else if (manifest->state == "recording" && this_boot)
    info.incomplete_why = "the collector was killed";
  else if (unclosed && of_container)
    info.incomplete_why = fmt::format("its collector ended with its container ({})", manifest->host);
  else if (manifest->state == "recording")
    info.incomplete_why = fmt::format("it was never closed (recorded on {})", manifest->host);
  else if (!closed && info.incomplete_why.empty())
    info.incomplete_why = manifest->state.empty() ? "its state is not known" : manifest->state;
  return recording;
}

}  // namespace whyrss
