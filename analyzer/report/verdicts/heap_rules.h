// Verdicts about the heap: what is live, what the allocator keeps, what live blocks pin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

// Where a heap that grew evenly, or was held, for long was freed as the process ended, by what main() and static
// variables hold: the last moment before.
std::optional<double> heap_held_until(const View& view, const ProcessView& process);

// What a process frees right before its end, by its own doing or as main() returns (nothing tells them apart): the last
// moment before, and what was live then. Nothing: no snapshot was that late, or it makes and frees memory in turn.
struct LateHeap {
  double until_s = 0;
  std::int64_t live_bytes = 0;
};
std::optional<LateHeap> freed_late(const View& view, const ProcessView& process);
// Until when most of a cause that has gone since the peak was there, if that is the end of the program: it unmapped it
// on its way out, and had held it for long.
std::optional<double> mapped_until(const View& view, const ProcessView& process, const CauseView& cause);
// ", freed in its last 0.2 s"
std::string live_until_text(const View& view, const ProcessView& process, const LateHeap& late);

void heap_growth(const View& view, std::vector<Verdict>& verdicts);
void heap_retained(const View& view, std::vector<Verdict>& verdicts);
void heap_fragmented(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
