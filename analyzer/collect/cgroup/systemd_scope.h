// A transient scope: a cgroup that systemd makes for a process that runs already, and removes when the last process in
// it has ended. Not a child of systemd's, so its parent, signals and exit status stay what they are.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "support/result.h"

namespace whyrss {

// Asks the user manager, then the system manager, and waits until the limit is in force. Directory of the scope's
// cgroup.
Result<std::string> start_scope(pid_t pid, std::int64_t limit_bytes, const std::string& cgroup_mount,
                                const std::string& busctl);

}  // namespace whyrss
