// The small blocks (below trace::kLargeBlockBytes usable) that are live in one process, and who allocated last on each
// page: all of them in exact mode, the sampled ones else. Larger blocks are AddressSpace's.
// A copy is a snapshot: a fork child goes on with its parent's.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "model/stack_table.h"

namespace whyrss {

struct LiveBlock {
  std::uint64_t address = 0;
  std::uint32_t size_bytes = 0;  // usable
  float weight = 1;              // blocks that this one stands for; 1: only itself
  StackId stack = kEmptyStack;
};

class LiveSet {
 public:
  // An address that is still live was released unseen: the new block takes its place.
  void allocate(const LiveBlock& block) {
    blocks_[block.address] = block;
    last_on_page_[block.address >> kPageShift] = block.stack;
  }
  // False: it is not here (not sampled, or from before us).
  bool release(std::uint64_t address) { return blocks_.erase(address) > 0; }
  // What lies in [start, end) is gone: unmapped, or taken for something else.
  void forget(std::uint64_t start, std::uint64_t end) {
    std::erase_if(blocks_, [&](const auto& entry) { return entry.first >= start && entry.first < end; });
    std::erase_if(last_on_page_, [&](const auto& entry) {
      return entry.first >= start >> kPageShift && entry.first < end >> kPageShift;
    });
  }
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }

  // In any order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [address, block] : blocks_) visit(block);
  }

  // The call that last allocated a block which begins on this page, as far as it is known.
  [[nodiscard]] StackId last_on_page(std::uint64_t address) const {
    const auto found = last_on_page_.find(address >> kPageShift);
    return found == last_on_page_.end() ? kEmptyStack : found->second;
  }

 private:
  static constexpr unsigned kPageShift = 12;
  std::unordered_map<std::uint64_t, LiveBlock> blocks_;
  std::unordered_map<std::uint64_t, StackId> last_on_page_;
};

}  // namespace whyrss
