// Frames of what smaps said of pages given up with MADV_FREE, bytes to sums.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attribute/lazy_pages.h"
#include "decode/bytes.h"

namespace whyrss {

struct LazyFree {
  std::uint64_t walk_end_ns = 0, read_ns = 0;
  std::vector<LazyFreeSum> sums;  // sorted, disjoint; whole pages
};

// Nothing when the bytes are no such frame.
std::optional<LazyFree> read_lazy_free(Bytes payload);

}  // namespace whyrss
