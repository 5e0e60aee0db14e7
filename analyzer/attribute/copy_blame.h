// Which line made the memory that a process copied, and which line wrote to it.
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/touched_pages.h"
#include "model/account.h"

namespace whyrss {

struct CopyBlame {
  const TouchedPages& touched;  // of the process that copied, before it takes in the walk that shows the copies
  std::uint64_t page_bytes = 4096;
  double time_s = 0;
  const LiveSet* small_blocks = nullptr;  // of that process; nullptr: none are known
};

// Appends slices that sum to the bytes of `ranges` (sorted): one for each stack that owns some of them, within large
// blocks or not, less what the samples tell of who wrote, each sample standing for as many pages as faults. Those of
// small blocks are estimates.
void blame_copies(const std::vector<Range>& ranges, const std::vector<OwnedRange>& owned, const CopyBlame& blame,
                  std::vector<CowSlice>& slices);

}  // namespace whyrss
