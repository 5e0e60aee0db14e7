// `whyrss doctor [-- CMD]`: what works on this machine and for this program, what will be missing, and
// how to enable it.
#pragma once

#include <string>
#include <vector>

namespace whyrss {

struct DoctorOptions {
  std::vector<std::string> command;  // may be empty
};

// Prints to stdout; always 0, since a missing capability is an answer, not a failure.
int run_doctor(const DoctorOptions& options);

}  // namespace whyrss
