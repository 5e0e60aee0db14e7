// The signals of `record`: those sent to it go on to the command; those that the terminal sends to the
// whole group have reached the command already, and record outlives them to report.
#pragma once

#include <sys/types.h>

#include <csignal>

namespace whyrss {

// Blocks what record passes on; returns the mask before.
sigset_t block_passed_signals();

// From here on signals go to `command`. Unblocks to `mask`.
void pass_signals_to(pid_t command, const sigset_t& mask);

// The command is about to be reaped: its pid may soon be another's.
void stop_passing_signals();

// True once after a request to stop (Ctrl-Z or kill -TSTP) reached record itself.
bool take_stop_request();

// Dies by `signal` without a core; as PID 1, which signals cannot kill, returns 128 + signal.
int die_by(int signal);

}  // namespace whyrss
