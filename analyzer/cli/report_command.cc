#include "cli/report_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/complain.h"
#include "cli/fail_if.h"
#include "cli/output_file.h"
#include "ingest/load.h"
#include "ingest/name_file.h"
#include "ingest/recording_check.h"
#include "recording/recording_folder.h"
#include "report/format.h"
#include "report/json.h"
#include "report/markdown.h"
#include "report/text.h"
#include "support/file.h"
#include "symbolize/symbolize.h"

namespace whyrss {
namespace {

constexpr int kDone = 0, kUnreadable = 1, kUsage = 2, kFailIfHeld = 3;

bool wants_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(fd) == 1 && (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
         std::strcmp(terminal, "dumb") != 0;
}

// At the end of a recording somebody waits; a later report has the time for what this leaves out.
constexpr ReadLimits kLimitsAtEnd{.cpu_s = 2, .wall_s = 10};

// Nor would they wait for all events of a long job to be read: 40 ms of CPU a MiB. Its first report stores the names.
constexpr std::uintmax_t kMostEventBytesAtEnd = 4UL << 20;

// Of a shorter job they are not read at its end at all, which would take several times what the job took: only where a
// verdict shows lines.
constexpr double kBriefS = 0.1;

// As the recording's own account of it says.
bool is_brief(const std::string& recording_directory) {
  const auto folder = open_recording(recording_directory);
  const auto manifest = folder ? read_manifest(*folder) : Result<Manifest>(Error{folder.error()});
  return manifest && manifest->ended_ns != 0 &&
         static_cast<double>(manifest->ended_ns - manifest->started_ns) < kBriefS * 1e9;
}

bool shows_lines(const std::vector<Verdict>& verdicts) {
  return std::ranges::any_of(verdicts, [](const Verdict& verdict) { return verdict.severity != Severity::ok; });
}

std::uintmax_t event_bytes(const std::string& recording_directory) {
  std::uintmax_t sum = 0;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator(recording_directory, error)) {
    const std::uintmax_t size = std::filesystem::file_size(process.path() / "events.zst", error);
    if (!error) sum += size;
  }
  return sum;
}

// Names for the native frames of `recording`, which lies in `folder` and gets the notes about them too. What had to be
// read from ELF files is kept for the next time, and for other machines.
void name_frames(RecordingAccount& recording, const Folder& folder, const ReadLimits& limits) {
  RecordingInfo& info = recording.info;
  std::vector<std::string> damage;
  NameTable names = read_name_file(folder, info.session, &damage);
  add_damage(damage, info);
  Symbolized done = symbolize(recording.stacks, names, limits);
  // A damaged file is replaced by a whole one only when all that it held is there again.
  const bool replaces = damage.empty() ? done.learned : done.notes.empty();
  for (std::string& note : done.notes) info.notes.push_back(std::move(note));
  if (replaces) static_cast<void>(write_name_file(folder, info.session, names));  // else they are read again
}

// Sites per cause in JSON: CPython in exact mode has tens of thousands, each with its stack, 300 MB of text in all.
constexpr std::size_t kJsonSites = 1000;

void render(const ReportOptions& options, const View& view, const TextSink& write) {
  const std::vector<Verdict> verdicts = find_verdicts(view);
  if (options.format == "json") return write_json(view, verdicts, options.top.value_or(kJsonSites), write);
  TextStyle style;
  if (options.top) style.top = *options.top;
  style.by_touch = options.by == "touch";
  style.stacks = options.stacks;
  if (options.format == "markdown") return write(render_markdown(view, verdicts, style));
  style.colour = (options.output.empty() || options.output == "-") && wants_colour(STDOUT_FILENO);
  write(render_text(view, verdicts, style));
}

bool has_pid(const RecordingAccount& recording, int pid) {
  for (const ProcessAccount& process : recording.processes)
    if (process.pid == pid) return true;
  return false;
}

std::string pids(const RecordingAccount& recording) {
  std::string list;
  for (const ProcessAccount& process : recording.processes)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", process.pid);
  return list.empty() ? "none" : list;
}

}  // namespace

int run_report(const ReportOptions& options) {
  FailIf condition;
  if (!options.fail_if.empty()) {
    const Result<FailIf> parsed = parse_fail_if(options.fail_if);
    if (!parsed) return complain(parsed.error(), kUsage);
    condition = *parsed;
  }
  const Result<Folder> folder = open_recording(options.recording);
  if (!folder) return complain(folder.error(), kUnreadable);
  Result<RecordingAccount> recording = load_account(*folder);
  if (!recording) return complain(recording.error(), kUnreadable);
  const Result<Interval> interval = parse_interval(*recording, options.from, options.to);
  if (!interval) return complain(interval.error(), kUsage);
  if (options.pid && !has_pid(*recording, *options.pid))
    return complain(fmt::format("--pid {}: not in this recording (its processes: {})", *options.pid, pids(*recording)),
                    kUsage);

  name_frames(*recording, *folder, ReadLimits{});
  const View view = build_view(*recording, *interval, options.pid);
  const int written =
      write_output([&](const TextSink& write) { render(options, view, write); }, options.output, "the report");
  if (written != kDone || options.fail_if.empty()) return written;
  const Result<bool> held = holds(condition, view);
  if (!held) return complain(held.error(), kUnreadable);
  if (!*held) return kDone;
  return complain(fmt::format("--fail-if {}: {} grew by {}", options.fail_if, condition.name,
                              size_text(*growth_of(condition, view))),
                  kFailIfHeld);
}

namespace {

Result<RecordingAccount> load_named(const std::string& recording_directory, const ReadLimits& limits) {
  const Result<Folder> folder = open_recording(recording_directory);
  if (!folder) return Error{folder.error()};
  Result<RecordingAccount> recording = load_account(*folder);
  if (recording) name_frames(*recording, *folder, limits);
  return recording;
}

}  // namespace

Result<RecordingAccount> load_with_names(const std::string& recording_directory) {
  return load_named(recording_directory, ReadLimits{});
}

std::string short_verdict(const std::string& recording_directory) {
  const Result<Folder> folder = open_recording(recording_directory);
  if (!folder) return "whyrss: " + printable(folder.error()) + "\n";
  Result<RecordingAccount> recording = load_account(*folder);
  if (!recording) return "whyrss: " + printable(recording.error()) + "\n";
  TextStyle style;
  style.colour = wants_colour(STDERR_FILENO);
  if (recording->info.duration_s < kBriefS) {
    const View nameless = build_view(*recording, whole_life(*recording), std::nullopt);
    const std::vector<Verdict> verdicts = find_verdicts(nameless);
    if (!shows_lines(verdicts)) return render_short(nameless, verdicts, style);
  }
  name_frames(*recording, *folder, kLimitsAtEnd);
  const View view = build_view(*recording, whole_life(*recording), std::nullopt);
  return render_short(view, find_verdicts(view), style);
}

void store_names(const std::string& recording_directory) {
  if (is_brief(recording_directory) || event_bytes(recording_directory) > kMostEventBytesAtEnd) return;
  static_cast<void>(load_named(recording_directory, kLimitsAtEnd));  // else the first report reads them
}

}  // namespace whyrss
