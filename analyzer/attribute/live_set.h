// The small blocks (below trace::kLargeBlockBytes usable) that are live in one process, and who allocated last on each
// page: all of them in exact mode, the sampled ones else. Larger blocks are AddressSpace's.
// A copy is a snapshot: a fork child goes on with its parent's.
//
// One open-addressed table with 16 bytes per block, at most half full, so that an event of exact mode costs one miss of
// the cache. Beside it 8 bytes per page, of the stretches of 16 MiB that ever held a block: how many live blocks begin
// there bounds what it costs to forget a range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "attribute/live_pages.h"
#include "model/stack_table.h"

namespace whyrss {

struct LiveBlock {
  std::uint64_t address = 0;
  std::uint32_t size_bytes = 0;  // usable
  float weight = 1;              // blocks that this one stands for; 1: only itself
  StackId stack = kEmptyStack;
  friend bool operator==(const LiveBlock&, const LiveBlock&) = default;
};

class LiveSet {
 public:
  // An address that is still live was released unseen: the new block takes its place. Blocks that no
  // allocator hands out are refused: at no multiple of 8, above 2^48, of 512 KiB or more.
  enum class Outcome : std::uint8_t { added, replaced, refused };
  Outcome allocate(const LiveBlock& block) {
    if (block.address == 0 || (block.address & ~kAddressMask) != 0 || block.size_bytes >= kSizeLimit)
      return Outcome::refused;
    if (blocks_ >= most_blocks_) grow();
    const std::uint64_t key = block.address >> kAlignBits;
    std::size_t at = home_of(key);
    while (slots_[at].key_and_size != 0 && slots_[at].key() != key) at = (at + 1) & mask_;
    const bool is_new = slots_[at].key_and_size == 0;
    slots_[at] = {key << kSizeBits | block.size_bytes, block.stack, block.weight};
    blocks_ += is_new ? 1 : 0;
    pages_.allocate(block.address, block.stack, is_new);
    return is_new ? Outcome::added : Outcome::replaced;
  }

  // False: it is not here (not sampled, large, or from before us).
  bool release(std::uint64_t address, LiveBlock& released) {
    const std::size_t at = find(address);
    if (at == kNowhere) return false;
    released = slots_[at].block();
    erase(at);
    pages_.release(address);
    return true;
  }
  bool release(std::uint64_t address) {
    LiveBlock ignored;
    return release(address, ignored);
  }

  // What lies in [start, end) is gone: unmapped, or taken for something else.
  void forget(std::uint64_t start, std::uint64_t end);

  // Starts to bring into the cache what an event of this address will need.
  [[gnu::always_inline]] void prefetch(std::uint64_t address) const {
    if (slots_.empty()) return;
    __builtin_prefetch(&slots_[home_of(address >> kAlignBits)], 1);
    pages_.prefetch(address);
  }

  [[nodiscard]] std::size_t size() const { return blocks_; }

  // In any order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.key_and_size != 0) visit(slot.block());
  }

  // Nothing where no live block begins, or none that is known.
  [[nodiscard]] std::optional<LiveBlock> block_at(std::uint64_t address) const {
    const std::size_t at = find(address);
    return at == kNowhere ? std::nullopt : std::optional(slots_[at].block());
  }

  // The call that last allocated a block which begins on this page, as far as it is known.
  [[nodiscard]] StackId last_on_page(std::uint64_t address) const { return pages_.last(address); }

 private:
  static constexpr unsigned kAlignBits = 3, kSizeBits = 19;
  static constexpr std::uint64_t kAddressMask =
      ((std::uint64_t{1} << 48) - 1) & ~((std::uint64_t{1} << kAlignBits) - 1);
  static constexpr std::uint32_t kSizeLimit = 1U << kSizeBits;
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  struct Slot {
    std::uint64_t key_and_size = 0;  // 0: empty
    StackId stack = kEmptyStack;
    float weight = 1;
    [[nodiscard]] std::uint64_t key() const { return key_and_size >> kSizeBits; }
    [[nodiscard]] LiveBlock block() const {
      return {.address = key() << kAlignBits,
              .size_bytes = static_cast<std::uint32_t>(key_and_size & (kSizeLimit - 1)),
              .weight = weight,
              .stack = stack};
    }
  };

  [[nodiscard]] std::size_t home_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15) >> shift_);
  }
  [[nodiscard]] std::size_t find(std::uint64_t address) const {
    if (slots_.empty() || (address & ~kAddressMask) != 0) return kNowhere;
    const std::uint64_t key = address >> kAlignBits;
    std::size_t at = home_of(key);
    for (; slots_[at].key_and_size != 0; at = (at + 1) & mask_)
      if (slots_[at].key() == key) return at;
    return kNowhere;
  }
  void erase(std::size_t at);
  void grow();

  std::vector<Slot> slots_;
  std::size_t mask_ = 0, blocks_ = 0, most_blocks_ = 0;
  unsigned shift_ = 63;
  LivePageTable pages_;
};

}  // namespace whyrss
