// The small blocks of one process while its events are replayed: what is live, and what a failed realloc gives back.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "attribute/address_space.h"
#include "attribute/live_set.h"
#include "decode/image_tables.h"
#include "model/thread_starts.h"
#include "recording/run_decoder.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

// Stack ids of one image in threads that one stack started (kEmptyStack: all others), each resolved once.
class StackCache {
 public:
  StackCache() = default;  // every stack is empty
  StackCache(ImageTables& image, ThreadStarts& threads, StackId starter)
      : image_(&image), threads_(&threads), starter_(starter) {}
  StackId operator[](std::uint32_t id) {
    StackId stack = kEmptyStack;
    return find(id, stack) ? stack : look_up(id);
  }
  // False: it was not asked for yet.
  [[gnu::always_inline]] bool find(std::uint32_t id, StackId& stack) const {
    if (id >= known_.size()) return false;
    stack = known_[id];
    return stack != kUnknown;
  }

 private:
  static constexpr StackId kUnknown{0xffffffff};
  StackId look_up(std::uint32_t id);

  ImageTables* image_ = nullptr;
  ThreadStarts* threads_ = nullptr;
  StackId starter_ = kEmptyStack;
  std::vector<StackId> known_;
};

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

  // Events of exact mode: consecutive ones of a thread, behind which BlockMerge::kLookahead more may be read. What is
  // released and no small block is one of `large`.
  void apply(std::span<const BlockEvent> events, std::uint32_t tid, StackCache& stacks, AddressSpace& large);

  [[nodiscard]] const LiveSet& live() const { return live_; }

 private:
  // An allocation that came before the release of the block that it replaces: two threads were stamped in the wrong
  // order, as long as that release follows at once and from another thread.
  struct Early {
    std::uint64_t address, ticks;
    std::uint32_t tid;
  };
  void apply_one(const BlockEvent& event, std::uint32_t tid, StackCache& stacks, AddressSpace& large);
  bool is_late_release(const BlockEvent& event, std::uint32_t tid);

  LiveSet live_;
  std::uint64_t sample_bytes_ = 0;
  std::vector<Early> early_;
  std::unordered_map<std::uint32_t, LiveBlock> last_released_;  // by tid; address 0: none
  std::uint32_t last_tid_ = 0;                                  // whose events came last, and its entry
  LiveBlock* of_last_tid_ = nullptr;
};

}  // namespace whyrss
