// `whyrss reduce REC… -o PART` and `whyrss merge PART|REC… -o JOB`.
#pragma once

#include <string>
#include <vector>

namespace whyrss {

struct ReduceOptions {
  std::vector<std::string> recordings;
  std::string output;
  std::string nodes;  // --nodes; "": as the recordings know them
};

struct MergeOptions {
  std::vector<std::string> inputs;  // parts, and recordings, which are reduced
  std::string output;
  std::string nodes;
  bool several_jobs = false, skip_damaged = false;
};

// 0, or 1 when an input cannot be read, inputs are of different jobs, or the output cannot be written. Then nothing is
// written.
int run_reduce(const ReduceOptions& options);
int run_merge(const MergeOptions& options);

}  // namespace whyrss
