// From which size on a growth is worth a sentence.
#pragma once

#include <cstdint>

#include "report/view.h"

namespace whyrss {

// Starting an interpreter with a few modules stays below this.
inline constexpr std::int64_t kNamedGrowthBytes = 8LL * 1024 * 1024;
// Of the process's own RSS growth: nobody who looks for a gigabyte wants to read about its twentieth.
inline constexpr double kNamedGrowthShare = 0.05;

// Slack, of live and slack bytes together: a heap from which nothing was freed has under 3 %, one from which a third
// was freed at random about 10 %, 70 % about 27 % (260,000 blocks of 16 B to 1 MB, glibc).
inline constexpr double kFragmentedShare = 0.2;

// RSS of all processes against their PSS. Libraries and what an interpreter shares with its forks make up 10 to 30 MiB
// a process: a handful of them is nobody's surprise, and stays below the first; a process with small helpers below the
// second.
inline constexpr std::int64_t kDoubleCountedBytes = 128LL * 1024 * 1024;
inline constexpr double kDoubleCountedRatio = 1.5;

bool is_fragmented(std::int64_t slack_bytes, std::int64_t live_bytes);
bool is_worth_naming(std::int64_t growth_bytes, const ProcessView& process);

}  // namespace whyrss
