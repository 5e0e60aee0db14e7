// Runs the command of a recording again under a memory limit below what it had mapped, and says what that did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/account.h"

namespace whyrss {

struct RerunOptions {
  std::optional<std::int64_t> limit_bytes;  // nothing: chosen from the recording
  std::string input = "/dev/null";
  bool show_output = false;
  bool agreed = false;  // to run it: the user is not asked
};

// What a recording says a limit has to leave room for, and what it may take.
struct LimitPlan {
  std::int64_t held_bytes = 0;   // the largest sum over all processes of what no reclaim frees, at one moment
  std::int64_t file_bytes = 0;   // the largest file cache of one process
  std::int64_t limit_bytes = 0;  // room for the first and a part of the second
};
LimitPlan plan_limit(const RecordingAccount& recording);

// Says what it will run and asks whether it may; prints on stdout the result, and on stderr what could not be done.
// 0: shown, or nothing to prove, or not wanted; 2: no terminal to ask on; else 1.
int prove_again(const RecordingAccount& recording, const RerunOptions& options);

}  // namespace whyrss
