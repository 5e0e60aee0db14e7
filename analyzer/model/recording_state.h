// Why a recording may be incomplete although nothing is wrong.
#pragma once

#include <string_view>

namespace whyrss {

// RecordingInfo::incomplete_why of one that is being made.
inline constexpr std::string_view kStillRunning = "still running";

}  // namespace whyrss
