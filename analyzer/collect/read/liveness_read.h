// What is live on the pages of the heap: the target's liveness table (shim/trace/liveness_format.h) and the headers of
// CPython's small-object pools, read from outside right after a page walk. Only pages of the table and of pools that
// are present are read: the target's memory does not grow by it.
#pragma once

#include <cstdint>
#include <vector>

#include "collect/read/page_walk.h"
#include "collect/read/pymalloc_pools.h"
#include "collect/read/target_memory.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

struct LivenessPages {
  std::uint64_t start = 0;
  std::vector<std::uint16_t> pages;  // trace::PageLiveness of consecutive pages
};

struct Liveness {
  trace::LivenessHeader header{};  // all but previous_ns and range_count
  std::uint64_t pool_bytes = 0;    // of CPython's small-object pools, 0: none is there
  std::vector<UsedPool> pools;
  // Resident private anonymous pages that hold or ever held blocks; sorted, disjoint.
  std::vector<LivenessPages> ranges;
};

// `table`: address of the target's LivenessTable. One that is not there (the target has just run exec) or may not be
// read, also one that ends on the way, gives the flag that says so, and nothing else.
Liveness read_liveness(const TargetMemory& memory, std::uint64_t table, const PageWalk& walk, PoolReader& pools,
                       PoolReader::Extent extent);

}  // namespace whyrss
