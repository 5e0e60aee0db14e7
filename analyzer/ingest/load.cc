#include "ingest/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "ingest/build.h"
#include "ingest/oom_words.h"
#include "ingest/pool_leftovers.h"
#include "ingest/pool_rescue.h"
#include "ingest/process_input.h"
#include "ingest/recording_check.h"
#include "procfs/process_stat.h"
#include "recording/manifest.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

namespace fs = std::filesystem;
using Inputs = std::vector<std::unique_ptr<ProcessInput>>;

constexpr const char* kCannotProve =
    "recorded by an older whyrss (format 2): frames or processes that were taken out as a whole could not be noticed";

Result<Manifest> read_manifest_once(const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return system_error("cannot open the recording", directory);
  if (!S_ISDIR(status.st_mode))
    return Error{fmt::format("{} is no whyrss recording: it is not a directory", directory)};
  const std::string path = directory + "/manifest.json";
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return Error{fmt::format("{} is no whyrss recording: its manifest.json is no file", directory)};
  const auto text = read_file(path);
  if (!text) {
    std::error_code error;
    if (!fs::exists(path, error) && !error)
      return Error{fmt::format("{} is no whyrss recording: it has no manifest.json", directory)};
    return Error{text.error()};
  }
  return parse_manifest(*text, path);
}

// Its collector may have written over the text while it was read.
Result<Manifest> read_manifest(const std::string& directory) {
  auto manifest = read_manifest_once(directory);
  if (manifest && manifest->is_sound) return manifest;
  return read_manifest_once(directory);
}

// One of the two files of a process; what cannot be read is said in its `damage`.
void read_frames(const std::string& recording_dir, trace::FileKind kind, const RecordingCheck& check,
                 ProcessInput& input) {
  FrameFile& file = kind == trace::FileKind::events ? input.events : input.pages;
  const std::string name = fmt::format("{}/{}", input.directory, name_of(kind));
  const std::string path = recording_dir + "/" + name;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    input.damage.push_back(name + (check.was_made(input.directory, kind) ? ": missing" : ": could not be made"));
    return;
  }
  auto parsed = read_frame_file(path);
  if (!parsed) {
    input.damage.push_back(parsed.error());
    return;
  }
  file = std::move(*parsed);
  const FileIdentity expected{.kind = kind, .session = {}, .pid = input.pid, .start_ticks = input.start_ticks};
  for (std::string& line : check.check_file(file, expected, input.directory)) input.damage.push_back(std::move(line));
}

// "<host>.<pid>.<start_ticks>"; the host may hold dots.
bool parse_process_name(const std::string& name, std::uint32_t& pid, std::uint64_t& start_ticks) {
  const auto parts = split(name, '.');
  if (parts.size() < 3) return false;
  const auto ticks = parse_number<std::uint64_t>(parts[parts.size() - 1]);
  const auto number = parse_number<std::uint32_t>(parts[parts.size() - 2]);
  if (!ticks || !number || *number == 0 || *number > INT_MAX) return false;
  pid = *number;
  start_ticks = *ticks;
  return true;
}

struct Processes {
  Inputs inputs;
  std::vector<std::string> damage;  // of the recording as a whole
};

Result<Processes> read_processes(const std::string& directory, const Manifest& manifest) {
  std::error_code error;
  std::set<std::string> names;
  for (auto entry = fs::directory_iterator(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code of_entry;
    std::uint32_t pid = 0;
    std::uint64_t start_ticks = 0;
    const std::string name = entry->path().filename().string();
    if (entry->is_directory(of_entry) && parse_process_name(name, pid, start_ticks)) names.insert(name);
  }
  if (error) return Error{fmt::format("cannot list {}: {}", directory, error.message())};
  const RecordingCheck check(manifest);
  Processes processes;
  processes.damage = check.check_directories(names);
  for (const std::string& name : names) {
    if (!check.is_own(name)) continue;
    auto input = std::make_unique<ProcessInput>();
    input->directory = name;
    parse_process_name(name, input->pid, input->start_ticks);
    read_frames(directory, trace::FileKind::events, check, *input);
    read_frames(directory, trace::FileKind::pages, check, *input);
    processes.inputs.push_back(std::move(input));
  }
  return processes;
}

bool is_this_boot(const Manifest& manifest) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || manifest.host != host.data()) return false;
  const auto boot_id = read_file("/proc/sys/kernel/random/boot_id");
  return boot_id && boot_id->substr(0, boot_id->find('\n')) == manifest.boot_id;
}

// Only a living collector holds the lock. Asking takes it for a moment, shared, and never waits.
bool collector_lives(const std::string& directory) {
  const Fd lock(open((directory + "/lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return lock && flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Of a job that was killed together with its collector, or before that could look at it.
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
  // What the log says of an end that no collector saw, only whoever reads the recording can know.
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
  return stat && stat->start_ticks == start_ticks && stat->state != 'Z' && stat->state != 'X';
}

// Of a recording that its collector did not close: whether the main process is gone without a word.
bool ended_unseen(const Manifest& manifest, const Inputs& inputs, const RecordingAccount& recording) {
  if (recording.processes.empty() || manifest.exit_code || manifest.exit_signal) return false;
  const ProcessAccount& main = recording.processes.front();
  if (main.pid != manifest.target_pid || main.ended_s || main.has_left) return false;
  return std::ranges::none_of(inputs, [&](const auto& one) {
    return std::cmp_equal(one->pid, main.pid) && is_running(one->pid, one->start_ticks);
  });
}

}  // namespace

Result<RecordingAccount> load_account(const std::string& recording_dir) {
  bool is_held = collector_lives(recording_dir);
  auto manifest = read_manifest(recording_dir);
  // It may have ended in between: what it left behind is told by what it wrote last.
  if (is_held && !collector_lives(recording_dir)) {
    is_held = false;
    manifest = read_manifest(recording_dir);
  }
  if (!manifest) return Error{manifest.error()};
  const bool this_boot = is_this_boot(*manifest);
  const bool closed = manifest->state == "complete";
  const bool running = !closed && this_boot && is_held;
  auto processes = read_processes(recording_dir, *manifest);
  if (!processes) return Error{processes.error()};
  Inputs& inputs = processes->inputs;

  // While the collector lives it recycles chunks under our hands, and stores them within a second.
  std::optional<PoolCopy> pool;
  std::uint64_t leftover_bytes = 0;
  if (!closed && !running) {
    // In this order: another report may be moving it now.
    if (this_boot) pool = PoolCopy::read(manifest->pool_path, manifest->session);
    if (pool)
      rescue_pool(recording_dir, manifest->pool_path);
    else
      pool = PoolCopy::read(rescued_pool_path(recording_dir), manifest->session);
    if (pool) leftover_bytes = pool->add_to(inputs);
  }
  RecordingAccount recording = build_account(*manifest, inputs);
  RecordingInfo& info = recording.info;
  info.path = recording_dir;
  add_damage(processes->damage, info);
  if (closed && manifest->format < trace::kFirstNumberedVersion) info.notes.emplace_back(kCannotProve);
  if (leftover_bytes > 0)
    info.notes.push_back(fmt::format("{} bytes of events that the collector had not stored", leftover_bytes));
  const bool orphaned = manifest->state == "recording" && this_boot && !running;
  const bool counted = this_boot && manifest->group_kills.value_or(0) > 0 && info.oom_kills.empty();
  if (orphaned || counted) ask_the_kernel(*manifest, recording);
  info.end_unseen = orphaned && !info.oom_killed && ended_unseen(*manifest, inputs, recording);
  if (running)
    info.incomplete_why = "still running";
  else if (manifest->state == "recording" && this_boot)
    info.incomplete_why = "the collector was killed";
  else if (manifest->state == "recording")
    info.incomplete_why = fmt::format("it was never closed (recorded on {})", manifest->host);
  else if (!closed && info.incomplete_why.empty())
    info.incomplete_why = manifest->state.empty() ? "its state is not known" : manifest->state;
  return recording;
}

}  // namespace whyrss
