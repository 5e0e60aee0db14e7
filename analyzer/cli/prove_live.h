// Reclaims the file pages of living processes, and says what that did.
#pragma once

#include <sys/types.h>

#include <vector>

namespace whyrss {

// Prints on stdout the figures before and after, one process after the other; what could not be done on stderr.
// 0: the file pages of each left its RSS, or it has next to none; else 1.
int prove_processes(const std::vector<pid_t>& pids);

}  // namespace whyrss
