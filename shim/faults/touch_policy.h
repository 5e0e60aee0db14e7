// Where page faults are not sampled: programs that could be hurt by a SIGTRAP of ours, or would be by the
// attempt to ask for one.
#pragma once

#include <string_view>

namespace whyrss::shim {

// Empty: go on. Else why a signal of ours could hurt, for the report. At constructor time.
std::string_view reason_against_touch(const char* const* environment) noexcept;

}  // namespace whyrss::shim
