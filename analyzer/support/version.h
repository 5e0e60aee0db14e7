// The version that recordings, reports and --version show; equals CMake's project version.
#pragma once

namespace whyrss {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace whyrss
