// `whyrss prove`: shows that file pages are reclaimable by reclaiming them.
#pragma once

#include <string>

namespace whyrss {

struct ProveOptions {
  std::string target;  // a process id, or the directory of a recording
  bool tree = false;   // its descendants too
  // Of a recording whose command is run again:
  std::string memory_max;           // as given; empty: chosen
  std::string input = "/dev/null";  // its stdin
  bool show_output = false;         // let its output through
  bool yes = false;                 // run it without a question
};

// 0 done, or nothing to prove; 1 bad input, or it could not be done; 2 no terminal to ask whether to run the command.
int run_prove(const ProveOptions& options);

}  // namespace whyrss
