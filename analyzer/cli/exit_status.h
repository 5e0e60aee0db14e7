// With what the command ends.
#pragma once

namespace whyrss {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;  // no recording, nothing found
inline constexpr int kUsage = 2;
inline constexpr int kFailIfHeld = 3;      // --fail-if
inline constexpr int kCannotRecord = 125;  // these as of env(1)
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

}  // namespace whyrss
