// The program's environment, changed without libc's setenv(): bash and others define one of their own, which keeps its
// variables elsewhere.
#pragma once

#include <string_view>

namespace whyrss::shim {

// Sets NAME=value for the program and its children: __environ, of which main gets its third argument, becomes a new
// array in memory of ours. In the constructor only. False: no memory.
bool set_in_environment(std::string_view name, std::string_view value) noexcept;

}  // namespace whyrss::shim
