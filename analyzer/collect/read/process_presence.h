// Whether a process is still the one that it was: pids are used again, start times are not.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "procfs/process_stat.h"

namespace whyrss {

// Reads /proc/PID/stat. Nothing, and why in errno: there is no such process (ENOENT, ESRCH), or it cannot be read, as
// when no descriptor is left.
std::optional<ProcessStat> read_stat(pid_t pid);
std::optional<std::uint64_t> start_ticks_of(pid_t pid);

// Whether `error`, of a file of /proc/PID, says that there is no such process.
bool says_gone(int error);

enum class Presence { gone, there, unknown };
// Of the process that began then; one that waits to be reaped is there.
Presence presence_of(pid_t pid, std::uint64_t start_ticks);

}  // namespace whyrss
