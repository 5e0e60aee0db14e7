// Whether a process that died of SIGKILL was killed by the kernel for lack of memory, or by another process.
#pragma once

#include <cstdint>

#include "model/account.h"

namespace whyrss {

// Sets oom_killed and oom_kill_probable of a recording whose processes are in order, the main one, `main_pid`, first
// where something of it was recorded. `group_kills`: counted in the group that record made, over its whole life.
void judge_kill(std::int64_t group_kills, std::int64_t main_pid, RecordingAccount& recording);

}  // namespace whyrss
