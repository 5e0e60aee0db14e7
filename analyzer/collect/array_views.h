// numpy arrays that are kept only by views of a small part of them, found by reading the target's small-object pools.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collect/liveness_read.h"
#include "collect/target_memory.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

// PyArrayObject_fields of numpy's ndarraytypes.h, the same since numpy 1.7; 96 bytes and more with its later members.
struct ArrayObject {
  std::uint64_t references, type;
  std::uint64_t data;
  std::int32_t dimension_count, padding;
  std::uint64_t dimensions, strides;  // addresses of dimension_count x i64
  std::uint64_t base;                 // the object that owns `data`, 0: this one
  std::uint64_t description;
  std::int32_t flags, padding2;
};
static_assert(sizeof(ArrayObject) == 72);

// True when the target has loaded numpy.
bool has_numpy(const PageWalk& walk);

// A view whose array is kept by views alone, all of them together smaller than a sixteenth of it. Arrays below
// kLeastBufferBytes are not looked at. Nothing when there are too many arrays to look at in a moment.
inline constexpr std::int64_t kLeastBufferBytes = 256 * 1024;
inline constexpr std::int64_t kRetainedRatio = 16;
std::vector<trace::RetainingView> find_retaining_views(const TargetMemory& memory, const Liveness& liveness);

}  // namespace whyrss
