// What `ps` and /proc/PID/cmdline show of this process.
#pragma once

#include <string>
#include <vector>

namespace whyrss {

// The words of main(), whose bytes are the only place for others.
void remember_arguments(int argc, char** argv);

// As many of `words` as fit.
void show_arguments(const std::vector<std::string>& words);

}  // namespace whyrss
