// The rules shared-memory-unmapped and shared-memory-left: files in memory that no process maps, which no RSS and no
// PSS counts.
#pragma once

#include <cstdint>
#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

// Less than this is not worth a line beside other figures.
inline constexpr std::int64_t kNamedUnmappedBytes = 1024 * 1024;

void shared_memory_unmapped(const View& view, std::vector<Verdict>& verdicts);
// What of it is there when all processes have ended.
void shared_memory_left(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
