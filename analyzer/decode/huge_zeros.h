// Frames of what huge pages hold, bytes to ranges.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attribute/evidence.h"
#include "decode/bytes.h"

namespace whyrss {

struct HugeZeros {
  std::uint64_t walk_end_ns = 0;
  std::uint32_t stride = 1;
  std::vector<Range> ranges;  // sorted, disjoint
};

// Zeros on pages that hold other bytes too: a page of nothing but zeros may have been filled with them. Nothing when
// the bytes are no such frame.
std::optional<HugeZeros> read_huge_zeros(Bytes payload);

}  // namespace whyrss
