// Which part of a block is data alone. CPython keeps the reference count, the links of its garbage collector and a
// cached hash at an object's start, so reading copies the first page of a large object and no other: who copied others
// wrote.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attribute/evidence.h"

namespace whyrss {

// PyGC_Head, the widest head of an object that has its data behind it, and what PYTHONMALLOC=debug puts before both.
inline constexpr std::uint64_t kObjectHeadBytes = 128;

// The whole pages of a live block behind the head of an object that may begin there; empty for small blocks.
inline Range block_data(const OwnedRange& owned) {
  constexpr std::uint64_t kMask = kLivePageBytes - 1;
  if (owned.owner != Owner::block || owned.end - owned.start < 2 * kLivePageBytes) return {};
  const Range data{(owned.start + kObjectHeadBytes + kMask) & ~kMask, owned.end & ~kMask};
  return data.start < data.end ? data : Range{};
}

// The same with the pages that the block fills in part, where the pages of data beside them were copied: these were
// written too. `ranges` is sorted; `copied` says which of them were copied.
template <typename Ranged, typename Copied>
Range written_data(const OwnedRange& owned, const std::vector<Ranged>& ranges, Copied copied) {
  const auto is_copied = [&](std::uint64_t address) {
    const auto range = std::ranges::upper_bound(ranges, address, {}, &Ranged::end);
    return range != ranges.end() && range->start <= address && copied(*range);
  };
  Range data = block_data(owned);
  if (data.start == data.end) return data;
  const bool with_head = is_copied(data.start), with_end = is_copied(data.end - kLivePageBytes);
  return {with_head ? owned.start : data.start, with_end ? owned.end : data.end};
}

}  // namespace whyrss
