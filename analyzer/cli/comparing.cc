#include "cli/comparing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "cli/record_command.h"
#include "cli/report_command.h"
#include "cli/terminal.h"
#include "load/load.h"
#include "report/wording/format.h"
#include "report/wording/wrap.h"
#include "shim/trace/trace_format.h"
#include "support/file.h"
#include "support/last_words.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kPinningLines = 5;  // that pin, for each allocator
constexpr std::size_t kErrorLines = 5;    // of a failed run's stderr
// An allocator that keeps this much of what is resident, and more than this, gets its thrifty settings too.
constexpr double kKeptPart = 0.1;
constexpr std::int64_t kKeptBytes = 8L << 20;

// The last lines of what a failed run said, for people who cannot see its output.
std::string last_lines(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return "";
  std::vector<std::string> lines;
  for (std::string& line : split(*text, '\n'))
    if (!line.empty()) lines.push_back(std::move(line));
  std::string out;
  for (std::size_t i = lines.size() > kErrorLines ? lines.size() - kErrorLines : 0; i < lines.size(); ++i)
    out += "\n  " + printable(lines[i]);
  return out;
}

std::string label_of(const FoundAllocator& found, const AllocatorChoice& choice) {
  std::string label = choice.name;
  if (label.find('/') != std::string::npos) label = std::filesystem::path(found.library).filename().string();
  for (const std::string& setting : choice.settings) label += " " + setting;
  return label;
}

RecordOptions record_options(const RunPlan& plan, const std::string& directory, double overhead_percent) {
  RecordOptions record;
  record.overhead_percent = overhead_percent;
  record.output = directory;
  record.preload = plan.library;
  record.quiet = true;
  record.at_end = "walk";
  record.command = plan.command;
  record.store_names = store_names;
  return record;
}

bool keeps_much(const HeapParts& parts, std::int64_t rss_bytes) {
  const std::int64_t kept = parts.retained - parts.library_retained;
  return kept >= kKeptBytes && static_cast<double>(kept) >= kKeptPart * static_cast<double>(rss_bytes);
}

// Read in a process of its own: the memory that this takes would count as the next bare run's peak.
bool keeps_much(Runner& runner, const std::string& recording, bool with_names) {
  return runner.run_aside([&] {
    const Result<RecordingAccount> account = with_names ? load_with_names(recording) : load_account(recording);
    if (!account) return 1;
    const RecordedRun run = recorded_run(*account);
    const bool much = keeps_much(run.at_peak, run.peak_rss_bytes) || keeps_much(run.at_end, run.final_rss_bytes);
    return run.has_parts && much ? 0 : 1;
  }) == 0;
}

// The allocator inside a library with the most memory, and whether that is one of Arrow's pools. Read in a process of
// its own, as above.
LibraryMemory library_memory(Runner& runner, const std::string& recording) {
  const int found = runner.run_aside([&] {
    const Result<RecordingAccount> account = load_with_names(recording);
    return account ? static_cast<int>(library_memory(*account)) : -1;
  });
  return found <= 0 || found > static_cast<int>(LibraryMemory::other) ? LibraryMemory::little
                                                                      : static_cast<LibraryMemory>(found);
}

// The recording whose peak is the middle one: its lines stand for all.
std::optional<RecordingAccount> typical(const std::vector<std::string>& recordings, const Spread& peaks) {
  const auto away = [&](double peak) { return std::abs(peak - peaks.median); };
  const auto middle =
      std::min_element(peaks.values.begin(), peaks.values.end(), [&](double a, double b) { return away(a) < away(b); });
  Result<RecordingAccount> account =
      load_with_names(recordings.at(static_cast<std::size_t>(middle - peaks.values.begin())));
  if (!account) return std::nullopt;
  return std::move(*account);
}

bool runs_plain_glibc(const Contestant& contestant) {
  return contestant.library.empty() && contestant.settings.empty();
}

}  // namespace

Result<Workplace> Workplace::make(const std::string& keep) {
  std::error_code error;
  if (!keep.empty()) {
    std::filesystem::create_directories(keep, error);
    if (error || !std::filesystem::is_empty(keep, error))
      return Error{fmt::format("--keep {}: not an empty directory", keep)};
  }
  std::string pattern = (std::filesystem::temp_directory_path(error) / "whyrss-compare-XXXXXX").string();
  if (error || mkdtemp(pattern.data()) == nullptr) return system_error("cannot make", pattern);
  return Workplace(pattern, keep.empty() ? pattern : std::filesystem::absolute(keep).string());
}

Workplace::~Workplace() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void Comparing::add_entrant(const FoundAllocator& found, const AllocatorChoice& choice, bool may_be_tuned) {
  Entrant entrant;
  Contestant& contestant = entrant.contestant;
  contestant.label = label_of(found, choice);
  contestant.family = found.family;
  contestant.version = found.version;
  contestant.library = found.library;
  contestant.settings = choice.settings;
  entrant.name = fmt::format("{}-{}", found.family, entrants_.size() + 1);
  entrant.may_be_tuned = may_be_tuned;
  entrants_.push_back(std::move(entrant));
}

void Comparing::find_entrants() {
  const bool by_default = options_.allocators.empty();
  for (const AllocatorChoice& choice : by_default ? default_allocators() : options_.allocators) {
    const Result<FoundAllocator> found = find_allocator(choice.name);
    if (found)
      add_entrant(*found, choice, by_default);
    else
      comparison_.notes.push_back("Left out: " + found.error());
  }
}

void Comparing::progress(const std::string& text) {
  if (isatty(STDERR_FILENO) != 1) return;
  // A line that goes on in the next one could not be cleared.
  std::fprintf(stderr, "\r\033[K%s", middle_shortened(text, text_columns(STDERR_FILENO) - 1).c_str());
  std::fflush(stderr);
  shows_progress_ = !text.empty();
}

RunPlan Comparing::plan_for(const Entrant& entrant) const {
  return {.command = options_.command,
          .library = entrant.contestant.library,
          .settings = entrant.contestant.settings,
          .input = options_.input.empty() ? "/dev/null" : options_.input,
          .show_output = options_.show_output,
          .error_output = workplace_.error_output()};
}

void Comparing::note_failure(const Entrant& entrant, const char* way, int round, const RunResult& result) {
  if (result.left_running > 0 && !std::exchange(reported_leftovers_, true))
    comparison_.notes.push_back(fmt::format(
        "The command left {} process{} running, which {} ended a second later: the runs must not meet.",
        result.left_running, result.left_running == 1 ? "" : "es", result.left_running == 1 ? "was" : "were"));
  const std::string end = describe_end(result.status);
  if (end.empty()) return;
  progress("");
  say(fmt::format("{}, {} run {}: {}", entrant.contestant.label, way, round, end));
  if (options_.show_output) return;
  const std::string said = last_lines(workplace_.error_output());
  if (!said.empty()) std::fprintf(stderr, "%s\n", said.c_str() + 1);
}

void Comparing::run_bare(Runner& runner, const RunPlan& plan, Entrant& entrant, int round) {
  const Result<RunResult> result = runner.run_bare(plan);
  if (!result) return comparison_.notes.push_back(result.error());
  if (runner.interrupted() != 0) return;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  note_failure(entrant, "bare", round, *result);
  entrant.contestant.bare.push_back({.end = describe_end(result->status),
                                     .wall_s = result->wall_s,
                                     .cpu_s = seconds(result->usage.ru_utime) + seconds(result->usage.ru_stime),
                                     .page_faults = result->usage.ru_minflt + result->usage.ru_majflt,
                                     .peak_rss_bytes = result->usage.ru_maxrss * 1024});
}

void Comparing::run_recorded(Runner& runner, const RunPlan& plan, Entrant& entrant, int round) {
  const std::string directory = workplace_.recording(fmt::format("{}-{}", entrant.name, round));
  const Result<RunResult> result =
      runner.run_recorded(plan, [&] { return run_record(record_options(plan, directory, options_.overhead_percent)); });
  if (!result) return comparison_.notes.push_back(result.error());
  if (runner.interrupted() != 0) return;
  note_failure(entrant, "recorded", round, *result);
  entrant.recordings.push_back(directory);
}

void Comparing::run_once(Runner& runner, Entrant& entrant, int round) {
  const RunPlan plan = plan_for(entrant);
  progress(fmt::format("{}, run {} of {}", entrant.contestant.label, round, options_.repeat));
  run_bare(runner, plan, entrant, round);
  if (runner.interrupted() == 0) run_recorded(runner, plan, entrant, round);
}

// After the first round: an allocator that keeps much runs again, to show what its settings can do about it. Arrow
// takes little from malloc: where its pool holds memory its other pools join, under the first allocator.
void Comparing::add_settings(Runner& runner) {
  if (entrants_.empty() || entrants_.front().recordings.empty()) return;
  const auto join = [&](const Contestant& who, std::vector<std::string> settings, std::string label) {
    add_entrant({who.family, who.version, who.library}, {who.family, std::move(settings)}, false);
    entrants_.back().contestant.label = std::move(label);
    run_once(runner, entrants_.back(), 1);
  };
  const bool by_default = entrants_.front().may_be_tuned;
  const Contestant first = entrants_.front().contestant;
  const LibraryMemory memory = library_memory(runner, entrants_.front().recordings.front());
  names_functions_ = memory != LibraryMemory::little;
  const std::size_t count = entrants_.size();
  for (std::size_t i = 0; i < count && runner.interrupted() == 0; ++i) {
    const Contestant contestant = entrants_[i].contestant;
    std::vector<std::string> settings = thrifty_settings(contestant.family);
    if (!entrants_[i].may_be_tuned || settings.empty() || entrants_[i].recordings.empty()) continue;
    if (keeps_much(runner, entrants_[i].recordings.front(), names_functions_))
      join(contestant, std::move(settings), contestant.family + " tuned");
  }
  if (!by_default || memory == LibraryMemory::little || memory == LibraryMemory::other) return;
  const std::string_view used = memory == LibraryMemory::arrow_mimalloc ? "mimalloc" : "jemalloc";
  for (const std::string pool : {"system", "jemalloc", "mimalloc"})
    if (pool != used && runner.interrupted() == 0)
      join(first, {"ARROW_DEFAULT_MEMORY_POOL=" + pool}, fmt::format("{}, Arrow {}", first.family, pool));
}

// What malloc_trim(0) would give back of what glibc keeps at the end: one more run, in which it is called.
void Comparing::run_trim(Runner& runner) {
  const auto glibc = std::find_if(entrants_.begin(), entrants_.end(),
                                  [](const Entrant& entrant) { return runs_plain_glibc(entrant.contestant); });
  if (glibc == entrants_.end() || glibc->recordings.empty()) return;
  progress("glibc with malloc_trim(0) at the end");
  const RunPlan plan = plan_for(*glibc);
  trim_recording_ = workplace_.recording(glibc->name + "-trim");
  const Result<RunResult> result = runner.run_recorded(plan, [&] {
    RecordOptions record = record_options(plan, trim_recording_, options_.overhead_percent);
    record.at_end = "trim";
    return run_record(record);
  });
  if (!result) trim_recording_.clear();
}

int Comparing::run() {
  find_entrants();
  Runner runner;
  for (int round = 1; round <= options_.repeat && runner.interrupted() == 0; ++round) {
    for (Entrant& entrant : entrants_)
      if (runner.interrupted() == 0) run_once(runner, entrant, round);
    if (round == 1 && runner.interrupted() == 0) add_settings(runner);
  }
  if (runner.interrupted() == 0) run_trim(runner);
  read_recordings(runner);
  if (shows_progress_) progress("");
  return runner.interrupted();
}

void Comparing::evaluate(Entrant& entrant) {
  Contestant& contestant = entrant.contestant;
  std::vector<std::string> read;
  for (const std::string& directory : entrant.recordings) {
    const Result<RecordingAccount> account = names_functions_ ? load_with_names(directory) : load_account(directory);
    if (!account) {
      comparison_.notes.push_back(contestant.label + ": " + account.error());
      continue;
    }
    contestant.recorded.push_back(recorded_run(*account));
    read.push_back(directory);
  }
  if (contestant.recorded.empty()) return;
  const std::string& used = contestant.recorded.front().allocator;
  if (!used.empty() && contestant.family != "other" && used != contestant.family)
    comparison_.notes.push_back(fmt::format(
        "{}: the program used {} instead, which it brings or which was preloaded already.", contestant.label, used));
  const ContestantFigures figures = figures_of(contestant);
  const auto kept = [](const Spread& slack, const Spread& retained) { return slack.median + retained.median; };
  contestant.pins_at_end =
      kept(figures.slack_at_end, figures.retained_at_end) >= kept(figures.slack_at_peak, figures.retained_at_peak);
  if (const auto account = typical(read, figures.recorded_peak_rss))
    contestant.pinning_lines = pinning_lines(*account, contestant.pins_at_end, kPinningLines);
}

void Comparing::read_recordings(Runner& runner) {
  for (Entrant& entrant : entrants_) {
    if (runner.interrupted() != 0) return;
    progress("reading the recordings of " + entrant.contestant.label);
    evaluate(entrant);
  }
  if (!trim_recording_.empty())
    if (const auto account = load_account(trim_recording_))
      for (Entrant& entrant : entrants_)
        if (runs_plain_glibc(entrant.contestant))
          entrant.contestant.trim = trim_effect(*account, std::string(trace::kTrimMark));
  for (Entrant& entrant : entrants_) comparison_.contestants.push_back(std::move(entrant.contestant));
}

}  // namespace whyrss
