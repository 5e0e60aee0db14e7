#include "cli/report_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/fail_if.h"
#include "cli/job_report.h"
#include "cli/near_miss.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "decode/code_names.h"
#include "decode/name_file.h"
#include "job/part_file.h"
#include "load/load.h"
#include "load/native_frames.h"
#include "load/recording_check.h"
#include "load/unsplit_memory.h"
#include "recording/recording_folder.h"
#include "report/render/github.h"
#include "report/render/json.h"
#include "report/render/markdown.h"
#include "report/render/text.h"
#include "report/view/build_view.h"
#include "report/wording/format.h"
#include "support/file.h"
#include "symbolize/symbolize.h"

namespace whyrss {
namespace {

// At the end of a recording the user waits; a later report has the time for what this leaves out.
constexpr ReadLimits kLimitsAtEnd{.cpu_s = 2, .wall_s = 10};

// All events of a long job would take too long to read: 40 ms of CPU a MiB. Its first report stores the names.
constexpr std::uintmax_t kMostEventBytesAtEnd = 4UL << 20;

// Of a shorter job they are not read at its end at all, which would take several times what the job took: only where a
// verdict shows lines.
constexpr double kBriefS = 0.1;

// What the program said last, the line below the answer, the prompt.
constexpr std::size_t kAroundAnswer = 3;

double duration_s(const Manifest& manifest) {
  return static_cast<double>(manifest.ended_ns - manifest.started_ns) / 1e9;
}

// As the recording's own account of it says.
bool is_brief(const Manifest& manifest) { return manifest.ended_ns != 0 && duration_s(manifest) < kBriefS; }

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

// The end of a recording, as wall time.
std::optional<std::time_t> recorded_until(const std::string& started_text, double duration_s) {
  std::tm started{};
  if (strptime(started_text.c_str(), "%Y-%m-%dT%H:%M:%S", &started) == nullptr) return std::nullopt;
  return timegm(&started) + static_cast<std::time_t>(std::ceil(duration_s)) + 1;  // `started` has microseconds
}

// Names for the native frames of `recording`, which lies in `folder` and gets the notes about them too. What had to be
// read from ELF files is kept for the next time, and for other machines.
void name_frames(RecordingAccount& recording, const Folder& folder, const ReadLimits& limits) {
  RecordingInfo& info = recording.info;
  std::vector<std::string> damage;
  NameTable names = read_name_file(folder, info.session, &damage);
  add_damage(damage, info);
  Symbolized done = symbolize(recording.stacks, names, limits, recorded_until(info.started, info.duration_s));
  // A damaged file is replaced by a whole one only when all that it held is there again.
  const bool replaces = damage.empty() ? done.learned : done.notes.empty();
  for (std::string& note : done.notes) info.notes.push_back(std::move(note));
  if (replaces) static_cast<void>(write_name_file(folder, info.session, names));  // else they are read again
  apply_code_names(folder, recording.stacks, info.notes);
  set_apart_unsplit(recording, names);
}

// Sites per cause in JSON: CPython in exact mode has tens of thousands, each with its stack, 300 MB of text in all.
constexpr std::size_t kJsonSites = 1000;

constexpr PictureBudget kJsonPictures{.of_each = 24, .pictures = 2000, .entries = 4'000'000};

void render(const ReportOptions& options, const View& view, const TextSink& write) {
  const std::vector<Verdict> verdicts = find_verdicts(view);
  if (options.format == "json") {
    const SiteStyle sites{.top = options.top.value_or(kJsonSites), .keeps_small_sites = options.keeps_small_sites};
    const auto schema = options.schema == 1 ? JsonSchema::v1 : JsonSchema::v2;
    return write_json(view, verdicts, {.sites = sites, .schema = schema, .pages = options.pages}, write);
  }
  if (options.format == "github") {
    const char* checkout = std::getenv("GITHUB_WORKSPACE");
    return write(render_github(view, verdicts, checkout == nullptr ? "" : checkout));
  }
  TextStyle style;
  if (options.top) style.top = *options.top;
  style.by_touch = options.by == "touch";
  style.stacks = options.stacks;
  if (options.format == "markdown") return write(render_markdown(view, verdicts, style));
  style.colour = (options.output.empty() || options.output == "-") && wants_colour(STDOUT_FILENO);
  style.columns = output_columns(options.output);
  write(render_text(view, verdicts, style));
}

// As people name it, who may have typed the id of a process.
Result<Folder> open_named(const std::string& path) {
  Result<Folder> folder = open_recording(path);
  if (folder) return folder;
  std::string hint = process_hint(path);
  return hint.empty() ? folder : Error{std::move(hint)};
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

int read_part(const std::string& recording_directory, const ReportPart& part, Progress& progress,
              RecordingAccount& recording, Interval& interval) {
  const Result<Folder> folder = open_named(recording_directory);
  if (!folder) return complain(folder.error(), kFailed);
  Result<RecordingAccount> loaded = load_account(*folder, {shown_by(progress), part.pictures});
  progress.clear();
  if (!loaded) return complain(loaded.error(), kFailed);
  const Result<Interval> parsed = parse_interval(*loaded, part.from, part.to);
  if (!parsed) {
    const std::size_t option_ends = parsed.error().find(' ');
    return complain(part.side.empty() ? parsed.error() : "--phase" + part.side + parsed.error().substr(option_ends),
                    kUsage);
  }
  if (part.pid && !has_pid(*loaded, *part.pid))
    return complain(
        fmt::format("--pid{} {}: not in this recording (its processes: {})", part.side, *part.pid, pids(*loaded)),
        kUsage);
  recording = std::move(*loaded);
  interval = *parsed;
  progress.at("naming functions");
  name_frames(recording, *folder, ReadLimits{});
  return kDone;
}

int run_report(const ReportOptions& options) {
  if (may_be_part(options.recording)) return run_job_report(options);
  FailIf condition;
  if (!options.fail_if.empty()) {
    const Result<FailIf> parsed = parse_fail_if(options.fail_if);
    if (!parsed) return complain(parsed.error(), kUsage);
    condition = *parsed;
  }
  Progress progress;
  RecordingAccount recording;
  Interval interval;
  const ReportPart part{options.from, options.to, options.pid, "", options.pages ? kJsonPictures : PictureBudget{}};
  if (const int status = read_part(options.recording, part, progress, recording, interval); status != kDone)
    return status;
  progress.at("writing the report");
  View view = build_view(recording, interval, options.pid);
  view.in_notebook = options.in_notebook;
  if (isatty(STDOUT_FILENO) == 1) progress.clear();
  const int written =
      write_output([&](const TextSink& write) { render(options, view, write); }, options.output, "the report");
  progress.clear();
  if (written != kDone || options.fail_if.empty()) return written;
  const Result<bool> held = holds(condition, view);
  if (!held) return complain(held.error(), kFailed);
  if (!*held) return kDone;
  return complain(fmt::format("--fail-if {}: {} grew by {}", options.fail_if, condition.name,
                              size_text(*growth_of(condition, view))),
                  kFailIfHeld);
}

namespace {

Result<RecordingAccount> load_named(const std::string& recording_directory, const ReadLimits& limits) {
  const Result<Folder> folder = open_named(recording_directory);
  if (!folder) return Error{folder.error()};
  Result<RecordingAccount> recording = load_account(*folder);
  if (recording) name_frames(*recording, *folder, limits);
  return recording;
}

}  // namespace

Result<RecordingAccount> load_with_names(const std::string& recording_directory) {
  return load_named(recording_directory, ReadLimits{});
}

Result<RecordingAccount> load_with_names(const std::string& recording_directory, Progress& progress,
                                         const PictureBudget& pictures) {
  const Result<Folder> folder = open_named(recording_directory);
  if (!folder) return Error{folder.error()};
  Result<RecordingAccount> recording = load_account(*folder, {shown_by(progress), pictures});
  progress.clear();
  if (!recording) return recording;
  progress.at("naming functions");
  name_frames(*recording, *folder, ReadLimits{});
  return recording;
}

std::string short_verdict(const std::string& recording_directory) {
  const Result<Folder> folder = open_named(recording_directory);
  if (!folder) return "whyrss: " + printable(folder.error()) + "\n";
  Progress progress;
  Result<RecordingAccount> recording = load_account(*folder, {.progress = shown_by(progress)});
  progress.clear();
  if (!recording) return "whyrss: " + printable(recording.error()) + "\n";
  TextStyle style;
  style.colour = wants_colour(STDERR_FILENO);
  style.columns = text_columns(STDERR_FILENO);
  if (const std::size_t rows = terminal_rows(STDERR_FILENO); rows > 0)
    style.lines = std::min(style.lines, std::max(rows, kAroundAnswer) - kAroundAnswer);
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
  const Result<Folder> folder = open_recording(recording_directory);
  const auto manifest = folder ? read_manifest(*folder) : Result<Manifest>(Error{folder.error()});
  if (!manifest || is_brief(*manifest) || event_bytes(recording_directory) > kMostEventBytesAtEnd) return;
  if (manifest->state != "complete") {
    static_cast<void>(load_named(recording_directory, kLimitsAtEnd));  // what was left behind is stored too
    return;
  }
  Result<StackTable> stacks = load_native_frames(*folder, *manifest);
  if (!stacks) return;  // the first report reads them
  NameTable names = read_name_file(*folder, manifest->session);
  if (symbolize(*stacks, names, kLimitsAtEnd, recorded_until(manifest->started, duration_s(*manifest))).learned)
    static_cast<void>(write_name_file(*folder, manifest->session, names));
}

}  // namespace whyrss
