// How many files a process has open.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace whyrss {

// Nothing where /proc/PID/fd may not be read.
std::optional<std::int64_t> count_descriptors(pid_t pid);

}  // namespace whyrss
