// `whyrss report REC`: what the recording says, in one of the formats.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cli/progress.h"
#include "model/account.h"
#include "replay/pictured_walks.h"
#include "report/view/interval.h"
#include "support/result.h"

namespace whyrss {

struct ReportOptions {
  std::string recording;
  std::string format = "text";  // text, json, markdown, github
  std::string output;           // -o; empty or "-": stdout
  std::string from, to;         // seconds or phase names; empty: the whole life
  std::optional<int> pid;
  std::optional<std::size_t> top;  // lines of text, sites per cause in JSON
  std::string by = "alloc";        // alloc, touch
  std::optional<int> schema;       // of JSON: 1, or 2 (the default)
  bool keeps_small_sites = false;  // JSON, schema 2: with all their frames
  bool pages = false;              // JSON: what each page is
  bool in_notebook = false;        // advice is for a cell of a running kernel
  bool stacks = false;             // text, markdown: the callers of the lines too
  std::string fail_if;             // empty: never
};

// 0, 1 unreadable recording or output, 2 an option that does not fit the recording, 3 --fail-if held.
int run_report(const ReportOptions& options);

// What of a recording is asked for.
struct ReportPart {
  std::string from, to;  // as in ReportOptions
  std::optional<int> pid;
  std::string side;  // "-a", "-b": behind the names of the options, in messages; of `from` and `to` it is --phase
  PictureBudget pictures{};
};

// The account of a recording, with names, and the interval that `part` means. 0, or what to end with, after a line on
// stderr.
int read_part(const std::string& recording_directory, const ReportPart& part, Progress& progress,
              RecordingAccount& recording, Interval& interval);

// The account of a recording, with the names of native code; those that had to be read from ELF files are stored.
Result<RecordingAccount> load_with_names(const std::string& recording_directory);
Result<RecordingAccount> load_with_names(const std::string& recording_directory, Progress& progress,
                                         const PictureBudget& pictures = {});

// The answer in a few lines, for the end of `record`: colours if stderr is a terminal that wants them.
// When the recording cannot be read: the reason. Stores the names of native code, too.
std::string short_verdict(const std::string& recording_directory);

// Only that, and only if it is quickly done: so that a copy of the recording names functions where the programs
// are not.
void store_names(const std::string& recording_directory);

}  // namespace whyrss
