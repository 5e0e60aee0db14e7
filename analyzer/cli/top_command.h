// `whyrss top`: shows memory by cause, and the lines, while programs run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/record_command.h"

namespace whyrss {

struct TopOptions {
  std::vector<std::string> targets;     // process ids, or one recording; empty: the largest processes
  std::optional<RecordOptions> record;  // a command to record and watch instead
  double interval_s = 2;
  std::optional<std::size_t> count;  // of screens
};

// The exit status: of a command that of `record`; else 0 done, 1 nothing to be seen.
int run_top(const TopOptions& options);

}  // namespace whyrss
