#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <string>

namespace whyrss {

inline std::string proc_path(pid_t pid, const char* file) { return fmt::format("/proc/{}/{}", pid, file); }

}  // namespace whyrss
