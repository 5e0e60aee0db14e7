#pragma once

#include <span>
#include <string>

namespace whyrss {

// Whether this is the command of a helper that Python's or torch's multiprocessing start for a job: a resource tracker,
// a fork server, torch's manager of shared memory. They end some milliseconds after the job, and are no part of it.
bool is_helper_command(std::span<const std::string> command);

}  // namespace whyrss
