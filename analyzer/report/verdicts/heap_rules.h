// Verdicts about the heap: what is live, what the allocator keeps, what live blocks pin.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

// The last moment before a process frees what it has held, where it does so as it ends: the locals of main() go when
// that returns, and static variables after it, right before the last snapshot. Nothing: it held it to the end, or freed
// it before another snapshot.
struct HeldHeap {
  double until_s = 0;
  std::int64_t live_bytes = 0;
};
std::optional<HeldHeap> heap_held_until(const View& view, const ProcessView& process);

void heap_growth(const View& view, std::vector<Verdict>& verdicts);
void heap_retained(const View& view, std::vector<Verdict>& verdicts);
void heap_fragmented(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
