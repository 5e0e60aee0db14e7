// Which resident pages are lazily freed: given up with MADV_FREE, not written to since and not taken by the kernel yet.
//
// The kernel says of each mapping how many bytes there are (smaps, LazyFree), the events say where they may be. Of
// these the pages of the latest calls count, up to the kernel's sum and never more: those given up earlier had more
// time to be used again. Pages with live small blocks are left out; of those that a large block was allocated on later
// only what nothing else explains counts, as it is what the program has not written to.
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/advised_pages.h"
#include "attribute/evidence.h"

namespace whyrss {

// The kernel's word on one mapping.
struct LazyFreeSum {
  std::uint64_t start = 0, end = 0;
  std::int64_t bytes = 0;
  friend bool operator==(const LazyFreeSum&, const LazyFreeSum&) = default;
};

// `advised`, sorted: when the pages of `evidence` were walked. `advised_later`: until the kernel was asked, which it
// counts too. Sorted, disjoint.
std::vector<LazyRange> find_lazy_pages(const std::vector<LazyFreeSum>& sums, const std::vector<AdvisedRange>& advised,
                                       const std::vector<Range>& advised_later, const Evidence& evidence);

}  // namespace whyrss
