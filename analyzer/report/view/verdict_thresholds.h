// From which size on a growth is worth a sentence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "report/view/view.h"

namespace whyrss {

// Starting an interpreter with a few modules stays below this.
inline constexpr std::int64_t kNamedGrowthBytes = 8LL * 1024 * 1024;
// Of the process's own RSS growth: a reader who looks for a gigabyte does not want its twentieth.
inline constexpr double kNamedGrowthShare = 0.05;

// Slack, of live and slack bytes together: a heap from which nothing was freed has under 3 %, one from which a third
// was freed at random about 10 %, 70 % about 27 % (260,000 blocks of 16 B to 1 MB, glibc).
inline constexpr double kFragmentedShare = 0.2;

// Of 1024 that a process may have open by default: a program that opens this many and closes none gets there.
inline constexpr std::int64_t kNamedDescriptorGrowth = 64;

// RSS of all processes against their PSS. Libraries and what an interpreter shares with its forks make up 10 to 30 MiB
// a process: a handful of them is no surprise, and stays below the first; a process with small helpers below the
// second.
inline constexpr std::int64_t kDoubleCountedBytes = 128LL * 1024 * 1024;
inline constexpr double kDoubleCountedRatio = 1.5;

// Anonymous and shared memory, of the limit of a memory cgroup: in the last tenth the kernel has next to no file cache
// left to take back, a program's code included, so it reads that again and again, and an ordinary peak of a large
// program is enough for a kill.
inline constexpr double kNearLimitShare = 0.9;

// Walks at a process below which nothing is said about how it moved in between.
inline constexpr std::size_t kTrendPoints = 4;
// Of the growth: what is within this of the last walk has not moved. Caches and heaps breathe by a few percent.
inline constexpr double kFlatShare = 0.05;
// Of a process's life: every program grows while it starts and loads its data.
inline constexpr double kTrendSpanS = 10;
// A shorter one is said to grow only where it did so evenly through most of its life, for as long as this, and by as
// much as is worth naming.
inline constexpr double kShortTrendSpanS = 4;
// Of the growth, in the last third of the time: even growth has 0.33 there.
inline constexpr double kStillGrowingShare = 0.2;
// Least growth that is reported beside much that did not grow: the collector walks after 1 MiB or 1 % of growth, and
// caches breathe by as much.
inline constexpr std::int64_t kSlowGrowthBytes = 1024 * 1024;
inline constexpr double kSlowGrowthShare = 0.01;
// Of such growth, in each quarter of its time: even growth has 0.25 there, one that comes in jobs of a tenth of the
// time still 0.2. A step, or a load that comes to its end, has most in one.
inline constexpr double kQuarterShare = 0.1, kMostInQuarter = 0.5;
// What was live so shortly before the end of its process, and is not at the end, was freed because it ended.
inline constexpr double kLeavingS = 1;
// Loading a data set seldom takes longer than this: what grows evenly for longer looks like a leak.
inline constexpr double kLeakSpanS = 60;

bool is_fragmented(std::int64_t slack_bytes, std::int64_t live_bytes);
bool is_worth_naming(std::int64_t growth_bytes, const ProcessView& process);

}  // namespace whyrss
