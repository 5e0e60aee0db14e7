// The small blocks of one process while its events are replayed: what is live, and what a failed realloc gives back.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "attribute/live_set.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

class SmallBlocks {
 public:
  // Another program image, which has nothing yet; `sample_bytes` as in its AttachRecord.
  void begin(std::uint64_t sample_bytes);
  // A fork child goes on with its parent's.
  void begin_as(LiveSet parents, std::uint64_t sample_bytes);

  // A sampled block: it stands for 1 / P others like it, where P was the chance to be chosen. False when no allocator
  // hands out such a block.
  bool allocate(const trace::BlockRecord& block, StackId stack);
  // False: it is none of these.
  bool release(std::uint64_t address, std::uint32_t tid);
  // False: the last one that `tid` released was no small one at `address`.
  bool undo_release(std::uint64_t address, std::uint32_t tid);
  void forget(std::uint64_t start, std::uint64_t size_bytes);

  [[nodiscard]] const LiveSet& live() const { return live_; }
  // Whether the image tells of small blocks at all.
  [[nodiscard]] bool followed() const { return sample_bytes_ > 0; }

 private:
  LiveSet live_;
  std::uint64_t sample_bytes_ = 0;
  std::unordered_map<std::uint32_t, LiveBlock> last_released_;  // by tid
};

}  // namespace whyrss
