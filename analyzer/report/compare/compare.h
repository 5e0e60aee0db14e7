// What `compare-allocators` measured, and what it makes of it. Pure: other code makes the runs.
// Sizes are bytes, times seconds. Each allocator ran several times bare, for CPU, wall time, page faults and peak
// RSS, and as often recorded, for what its heap is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/account.h"
#include "model/cause.h"

namespace whyrss {

// How a run ended: "" well, else "exit status 3", "killed by SIGSEGV".
using RunEnd = std::string;

struct BareRun {
  RunEnd end;
  double wall_s = 0, cpu_s = 0;  // user + system, with the children that it waited for
  std::int64_t page_faults = 0;
  std::int64_t peak_rss_bytes = 0;  // of its largest process
};

struct HeapParts {
  std::int64_t live = 0, slack = 0, retained = 0, metadata = 0;
  std::int64_t library_retained = 0;  // of `retained`, by allocators inside libraries
  std::int64_t unsplit = 0;           // of those: live or free is not known
};

// Of all processes together, without our own memory; what several of them map counts once.
struct RecordedRun {
  RunEnd end;
  std::int64_t peak_rss_bytes = 0, final_rss_bytes = 0;  // final: when the main process ended
  double rss_byte_seconds = 0;
  HeapParts at_peak, at_end;
  bool has_parts = false;  // else the whole heap counts as live, and nothing is known of the rest
  std::string allocator;   // that the main process really used
};

// Memory that a line's live blocks keep from being given back, or that it was the last to use.
struct PinningLine {
  Cause cause = Cause::heap_slack;
  std::int64_t bytes = 0;
  std::string line;  // "" where no stack was recorded
};

// malloc_trim(0) at the end of the main process.
struct TrimEffect {
  std::int64_t retained_before = 0, retained_after = 0;
  std::int64_t rss_before = 0, rss_after = 0;
};

// An allocator with its settings.
struct Contestant {
  std::string label;    // "jemalloc", "glibc MALLOC_ARENA_MAX=1": its name in every table
  std::string family;   // glibc, jemalloc, tcmalloc, mimalloc, or other
  std::string version;  // "" if it does not say
  std::string library;  // path; "" for the program's own, glibc
  std::vector<std::string> settings;
  std::vector<BareRun> bare;
  std::vector<RecordedRun> recorded;
  bool pins_at_end = false;                // else they are those of the peak
  std::vector<PinningLine> pinning_lines;  // largest first
  std::optional<TrimEffect> trim;
};

struct Comparison {
  std::vector<std::string> command;
  std::vector<Contestant> contestants;  // the first is what the others are compared with
  std::vector<std::string> notes;       // what is missing or went wrong
};

// Median, least and largest of several runs.
struct Spread {
  double median = 0, least = 0, most = 0;
  std::vector<double> values;  // in the order of the runs
};
Spread spread_of(std::vector<double> values);

// Whether two sets of runs differ by more than the runs of each differ among themselves. Never with one run each.
bool is_distinct(const Spread& a, const Spread& b);

// The figures of the tables, for each contestant. Empty where no run of that kind ended.
struct ContestantFigures {
  Spread peak_rss, page_faults, cpu_s, wall_s;  // bare
  Spread final_rss, rss_byte_seconds, recorded_peak_rss;
  Spread live_at_peak, slack_at_peak, retained_at_peak, live_at_end, slack_at_end, retained_at_end;
  Spread unsplit_at_peak, unsplit_at_end;
  bool has_parts = false;
  std::vector<RunEnd> ends;  // of all runs that did not end well, each text once
};
ContestantFigures figures_of(const Contestant& contestant);

// One paragraph: which allocator, which setting, how much; or that there is nothing in it.
std::string conclusion(const Comparison& comparison);

// What allocators inside libraries have at some moment, of a recording whose functions have names.
enum class LibraryMemory : std::uint8_t { little, arrow_mimalloc, arrow_jemalloc, other };
LibraryMemory library_memory(const RecordingAccount& recording);

// From a recording to the figures of its run.
RecordedRun recorded_run(const RecordingAccount& recording);
// Its lines with the most slack and retained memory, at the peak or at the end. At most `top`.
std::vector<PinningLine> pinning_lines(const RecordingAccount& recording, bool at_end, std::size_t top);
// Around the last mark of that name; nothing when it was not made or not walked.
std::optional<TrimEffect> trim_effect(const RecordingAccount& recording, const std::string& mark_name);

}  // namespace whyrss
