// From which size on a growth is worth a sentence.
#pragma once

#include <cstdint>

#include "report/view.h"

namespace whyrss {

// Starting an interpreter with a few modules stays below this.
inline constexpr std::int64_t kNamedGrowthBytes = 8LL * 1024 * 1024;
// Of the process's own RSS growth: nobody who looks for a gigabyte wants to read about its twentieth.
inline constexpr double kNamedGrowthShare = 0.05;

bool is_worth_naming(std::int64_t growth_bytes, const ProcessView& process);

}  // namespace whyrss
