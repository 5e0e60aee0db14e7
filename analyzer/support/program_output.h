// Asking another program: its status and the first line that it prints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "support/result.h"

namespace whyrss {

struct ProgramOutput {
  int status = -1;         // -1: ended by a signal
  std::string first_line;  // of stdout and stderr together
};

// Runs a program, sought in PATH, to its end, without stdin. An error: it could not be started, or did not end within
// `patience` and was killed (an interpreter that has no memory to start with may try for ever).
Result<ProgramOutput> run_program(const std::vector<std::string>& command,
                                  std::chrono::milliseconds patience = std::chrono::seconds(20));

}  // namespace whyrss
