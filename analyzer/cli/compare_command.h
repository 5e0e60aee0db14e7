// `whyrss compare-allocators`: a command under each allocator, alternated, bare and recorded.
#pragma once

#include <string>
#include <vector>

#include "cli/allocators.h"

namespace whyrss {

struct CompareOptions {
  std::vector<AllocatorChoice> allocators;  // empty: glibc and those found, with thrifty settings where they may help
  int repeat = 3;
  std::string format = "text";  // text, json, markdown
  std::string output;           // -o; empty or "-": stdout
  std::string keep;             // --keep: directory for the recordings; empty: they are removed
  std::string input;            // --input: stdin of each run; empty: /dev/null
  double overhead_percent = 3;  // of recorded runs, as of record
  bool show_output = false;
  std::vector<std::string> command;
};

// 0 done, 1 nothing could be measured or written, 126 and 127 as record. Dies by a signal that ended it.
int run_compare(const CompareOptions& options);

}  // namespace whyrss
