// `whyrss diff A B`: what changed between two recordings, phases of one, processes, or jobs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cli/report_command.h"
#include "report/view/view.h"

namespace whyrss {

struct DiffSide {
  std::string recording;
  std::string phase;  // empty: the whole life
  std::optional<int> pid;
  const char* suffix = "-a";  // of the names of the options that chose them: --phase-a; "s": --phases
};

struct DiffOptions {
  DiffSide a, b{.recording = {}, .phase = {}, .pid = {}, .suffix = "-b"};
  std::string format = "text";      // text, json, markdown, html
  std::string output;               // -o; empty or "-": stdout
  std::optional<SiteFigure> value;  // growth; of jobs at_peak
  std::optional<std::size_t> top;   // lines
  std::string fail_if;              // empty: never
};

// 0, 1 unreadable recording or output, 2 an option that does not fit the recordings, 3 --fail-if held.
int run_diff(const DiffOptions& options);

}  // namespace whyrss
