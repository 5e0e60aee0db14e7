#include "cli/prove_rerun.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <tuple>
#include <vector>

#include "cli/compare_runs.h"
#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/progress.h"
#include "cli/record_command.h"
#include "cli/shell_words.h"
#include "cli/terminal.h"
#include "collect/read/target_kind.h"
#include "load/load.h"
#include "report/view/limit_effect.h"
#include "report/wording/format.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
// Less than that is too little to tell from what the kernel and the recording itself need in the group.
constexpr std::int64_t kLeastFileBytes = 32 * kMiB;
// Page tables, stacks of the kernel, the collector's buffers; and what two runs differ by.
constexpr std::int64_t kRoomBytes = 16 * kMiB;
constexpr double kSpread = 1.25;
constexpr double kFilePart = 0.25;  // of the file cache that stays possible: a program needs some to get on
constexpr std::int64_t kNamedFileBytes = kMiB;

// A directory that is removed with all that is in it.
class Workplace {
 public:
  Workplace() {
    std::string name = (std::filesystem::temp_directory_path() / "whyrss-prove-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Of one walk: what no reclaim frees, and file cache. What a fork shares counts in its owner. What was given up with
// MADV_FREE counts as held: between two walks it may have been in use.
struct Parts {
  std::int64_t held = 0, file = 0;
};

Parts parts_of(const Account& account) {
  Parts parts;
  for (const Slice& slice : account.slices) {
    if (slice.site.cause == Cause::file_cache)
      parts.file += slice.bytes;
    else if (slice.site.cause != Cause::fork_shared)
      parts.held += slice.bytes;
  }
  return parts;
}

struct Peaks {
  std::int64_t rss = 0, file = 0;
};

// Of the process with the most file cache.
Peaks peaks_of(const RecordingAccount& recording) {
  Peaks best;
  for (const ProcessAccount& process : recording.processes) {
    Peaks peaks;
    for (const Account& account : process.accounts) {
      peaks.rss = std::max(peaks.rss, account.rss_bytes);
      peaks.file = std::max(peaks.file, parts_of(account).file);
    }
    if (peaks.file > best.file) best = peaks;
  }
  return best;
}

// What mlock holds of files, at most, in one process.
std::int64_t locked_file_bytes(const RecordingAccount& recording) {
  std::int64_t most = 0;
  for (const ProcessAccount& process : recording.processes)
    for (const DirtyFiles& read : process.dirty_files) {
      std::int64_t sum = 0;
      for (const auto& [path, bytes] : read.locked) sum += bytes;
      most = std::max(most, sum);
    }
  return most;
}

// Page cache is charged to the group that reads it first: what is there already would not count against the limit. Only
// clean pages that no process maps are dropped.
void drop_cached_files(const RecordingAccount& recording) {
  std::set<std::string> files;
  for (const ProcessAccount& process : recording.processes)
    for (const Account& account : process.accounts)
      for (const Slice& slice : account.slices)
        if (slice.site.cause == Cause::file_cache && slice.bytes >= kNamedFileBytes) files.insert(slice.site.mapping);
  for (const std::string& path : files) {
    const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd) posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

std::string ending(const RecordingInfo& info) {
  if (info.exit_signal) return "killed by " + *info.exit_signal;
  return info.exit_code ? fmt::format("exit status {}", *info.exit_code) : "an end that was not seen";
}

std::string last_line(const std::string& path) {
  const auto text = read_file(path);
  std::string last;
  if (text)
    for (const std::string& line : split(*text, '\n'))
      if (!line.empty()) last = line;
  return last;
}

void print_row(const std::string& moment, const Peaks& peaks) {
  fmt::print("  {:<20} {:>10} {:>12}\n", moment, size_text(peaks.rss), size_text(peaks.file));
}

// A command may write files, or send what it sent before: it runs again only where the user agrees. What to end with
// when it may not.
std::optional<int> ask_to_run(const std::vector<std::string>& command, std::int64_t limit_bytes,
                              const RerunOptions& options) {
  const std::string what =
      fmt::format("run once more, under a memory limit of {}: {}", size_text(limit_bytes), shell_command(command));
  fmt::print("  this will {}\n", what);  // in one line: a command may be copied
  std::fflush(stdout);
  if (options.agreed) return std::nullopt;
  if (isatty(STDIN_FILENO) != 1)
    return complain("prove: there is no terminal to ask on whether to " + what + " (give --yes to let it run)", kUsage);
  fmt::print(stderr, "Run it? It does again all that it did when it was recorded. [y/N] ");
  std::string answer;
  for (int letter = std::getchar(); letter != EOF && letter != '\n'; letter = std::getchar())
    answer += static_cast<char>(letter);
  if (answer == "y" || answer == "Y" || answer == "yes") return std::nullopt;
  print_wrapped("not run");
  return kDone;
}

std::int64_t peak_kills(const LimitEffect& effect) { return effect.oom_kills.value_or(0); }

int compare(const RecordingAccount& recording, const RecordingAccount& again, std::int64_t limit_bytes) {
  const Peaks before = peaks_of(recording), after = peaks_of(again);
  fmt::print("  {:<20} {:>10} {:>12}   (peaks of the process with most file cache)\n", "", "RSS", "file cache");
  print_row("recorded", before);
  print_row("with " + size_text(limit_bytes), after);
  if (!again.info.cgroup)
    return complain("the run says nothing about its memory group: what the limit did is not known");
  const LimitEffect effect = limit_effect(*again.info.cgroup);
  for (const std::string& line : limit_effect_lines(again.info)) print_wrapped(printable(line));
  print_wrapped(fmt::format("ended with {} after {}, as recorded with {} after {}", ending(again.info),
                            seconds_text(again.info.duration_s), ending(recording.info),
                            seconds_text(recording.info.duration_s)));
  // Who was killed may not have been read since it locked them.
  const std::int64_t locked = std::max(locked_file_bytes(recording), locked_file_bytes(again));
  if ((peak_kills(effect) > 0 || again.info.oom_killed) && locked >= kNamedFileBytes)
    return complain(
        fmt::format("it was killed at {}: {} of its file cache is locked in memory (mlock), which the kernel cannot "
                    "take back, so it is needed like memory of its own; give --memory-max",
                    size_text(limit_bytes), size_text(locked)));
  if (peak_kills(effect) > 0 || again.info.oom_killed)
    return complain(fmt::format("it was killed at {}: what it holds besides file cache needs more; give --memory-max",
                                size_text(limit_bytes)));
  if (std::tie(again.info.exit_code, again.info.exit_signal) !=
      std::tie(recording.info.exit_code, recording.info.exit_signal))
    return complain(
        "it ended otherwise than recorded: it may need the directory, the environment or the input (--input) that it "
        "had then; --show-output shows what it says");
  if (effect.limit_hits.value_or(0) == 0)
    return complain(
        fmt::format("it never came up against the limit of {}, so nothing is shown; give a smaller "
                    "--memory-max",
                    size_text(limit_bytes)));
  if (after.file + kNamedFileBytes > before.file)
    return complain(
        fmt::format("the limit of {} was hit, and the process had as much file cache at its peak as recorded: whether "
                    "the kernel took any of that back is not shown; give a smaller --memory-max",
                    size_text(limit_bytes)));
  print_wrapped(fmt::format(
      "So {} of file cache were enough where {} had been: the kernel took back the rest while it ran, and no process "
      "was killed. No leak.",
      size_text(after.file), size_text(before.file)));
  return kDone;
}

}  // namespace

LimitPlan plan_limit(const RecordingAccount& recording) {
  struct Change {
    double time_s;
    std::size_t process;
    std::int64_t held;
  };
  LimitPlan plan;
  std::vector<Change> changes;
  for (std::size_t i = 0; i < recording.processes.size(); ++i) {
    const ProcessAccount& process = recording.processes[i];
    for (const Account& account : process.accounts) {
      const Parts parts = parts_of(account);
      plan.file_bytes = std::max(plan.file_bytes, parts.file);
      changes.push_back({account.time_s, i, parts.held});
    }
    if (process.ended_s) changes.push_back({*process.ended_s, i, 0});
  }
  std::ranges::stable_sort(changes, {}, &Change::time_s);
  std::vector<std::int64_t> held(recording.processes.size());
  std::int64_t sum = 0;
  for (const Change& change : changes) {
    sum += change.held - held[change.process];
    held[change.process] = change.held;
    plan.held_bytes = std::max(plan.held_bytes, sum);
  }
  plan.limit_bytes = static_cast<std::int64_t>(kSpread * static_cast<double>(plan.held_bytes) +
                                               kFilePart * static_cast<double>(plan.file_bytes)) +
                     kRoomBytes;
  return plan;
}

int prove_again(const RecordingAccount& recording, const RerunOptions& options) {
  const std::vector<std::string>& command = recording.info.command;
  const LimitPlan plan = plan_limit(recording);
  fmt::print("{} ({})\n", printable(shortened(join(command, " "), 80)), printable(recording.info.path));
  if (plan.file_bytes < kLeastFileBytes) {
    print_wrapped(fmt::format("at most {} of file cache in a process: nothing to prove", size_text(plan.file_bytes)));
    return kDone;
  }
  const std::int64_t limit_bytes = options.limit_bytes.value_or(plan.limit_bytes);
  if (!options.limit_bytes && limit_bytes >= plan.held_bytes + plan.file_bytes)
    return complain(
        fmt::format("{} of file cache beside {} that no limit can take: too little for a limit to show; "
                    "`whyrss prove PID` on the running program does",
                    size_text(plan.file_bytes), size_text(plan.held_bytes)));
  if (command.empty()) return complain("the recording does not say what was run");
  const TargetKind kind = inspect_target(command.front()).kind;
  if (kind == TargetKind::not_found || kind == TargetKind::not_executable)
    return complain(fmt::format("{} cannot be run again here{}", command.front(),
                                recording.info.host.empty() ? "" : " (recorded on " + recording.info.host + ")"));
  if (const auto refused = ask_to_run(command, limit_bytes, options)) return *refused;
  const Workplace workplace;
  if (workplace.path().empty())
    return complain("cannot make a directory for the run in " + std::filesystem::temp_directory_path().string());
  print_wrapped(fmt::format("runs; it took {} when it was recorded", seconds_text(recording.info.duration_s)));
  std::fflush(stdout);
  drop_cached_files(recording);
  RecordOptions record;
  record.output = workplace.path() + "/again";
  record.memory_max = std::to_string(limit_bytes);
  record.quiet = true;
  record.command = command;
  const RunPlan run{.command = command,
                    .library = {},
                    .settings = {},
                    .input = options.input,
                    .show_output = options.show_output,
                    .error_output = workplace.path() + "/stderr"};
  Runner runner;
  const auto result = runner.run_recorded(run, [&] { return run_record(record); });
  if (runner.interrupted() != 0) return complain("interrupted");
  if (!result) return complain(result.error());
  if (WIFEXITED(result->status) && WEXITSTATUS(result->status) == kCannotRecord) {
    const std::string said = last_line(run.error_output);
    return complain(said.empty() ? "the run could not be recorded" : said.substr(said.starts_with("whyrss: ") ? 8 : 0));
  }
  Progress progress;
  const auto again = load_account(record.output, {.progress = shown_by(progress)});
  progress.clear();
  if (!again) return complain(again.error());
  return compare(recording, *again, limit_bytes);
}

}  // namespace whyrss
