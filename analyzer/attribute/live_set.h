// The small blocks (below trace::kLargeBlockBytes usable) that are live in one process, and who allocated last on each
// page: all of them in exact mode, the sampled ones else, also of up to trace::kAlwaysLoggedBytes. Larger blocks are
// AddressSpace's.
// A copy is a snapshot: a fork child goes on with its parent's.
//
// Beside the table of blocks 8 bytes per page, of the stretches of 16 MiB that ever held a block: how many live blocks
// begin there bounds what it costs to forget a range.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "attribute/block_table.h"
#include "attribute/block_turnover.h"
#include "attribute/live_block.h"
#include "attribute/live_pages.h"
#include "model/stack_table.h"
#include "support/page_size.h"

namespace whyrss {

class LiveSet {
 public:
  // An address that is still live was released unseen: the new block takes its place. Blocks that no
  // allocator hands out are refused: at no multiple of 8, above 2^48, of 512 KiB or more.
  enum class Outcome : std::uint8_t { added, replaced, refused };
  Outcome allocate(const LiveBlock& block) { return allocate(block, block.weight); }
  // Of a sample: see BlockTurnover.
  Outcome allocate(const LiveBlock& block, double usual_weight) {
    if (!BlockTable::may_hold(block.address, block.size_bytes)) return Outcome::refused;
    const auto replaced = blocks_.put(block);
    if (replaced && replaced->weight > 1) turnover_.released(replaced->kind(), replaced->weight);
    if (block.weight > 1) turnover_.allocated(block.kind(), block.weight, usual_weight);
    pages_.allocate(block.address, block.kind(), !replaced);
    // A sample tells as often by one page as a small block does: RetainedWeights counts on it.
    if (block.weight == 1 && block.size_bytes > kPageBytes)
      pages_.allocate_rest(block.address, block.size_bytes, block.kind());
    return replaced ? Outcome::replaced : Outcome::added;
  }

  // False: it is not here (not sampled, large, or from before us).
  bool release(std::uint64_t address, LiveBlock& released) {
    const auto taken = blocks_.take(address);
    if (!taken) return false;
    released = *taken;
    if (released.weight > 1) turnover_.released(released.kind(), released.weight);
    pages_.release(address);
    return true;
  }
  bool release(std::uint64_t address) {
    LiveBlock ignored;
    return release(address, ignored);
  }

  // Events of exact mode, from the first one on, as long as they are usual; returns how many. The others are for
  // allocate() and release(). `events` are recording's BlockEvent, behind which `ahead` more may be read;
  // `stack_of(id, stack)` is false where a stack is not known at once.
  template <typename Event, typename StackOf>
  std::size_t play(std::span<const Event> events, std::size_t ahead, StackOf stack_of, LiveBlock& last_released);

  // What lies in [start, end) is gone: unmapped, or taken for something else.
  void forget(std::uint64_t start, std::uint64_t end);

  [[nodiscard]] std::size_t size() const { return blocks_.size(); }

  // In any order.
  template <typename Visit>
  void for_each(Visit visit) const {
    blocks_.for_each(visit);
  }

  // Nothing where no live block begins, or none that is known.
  [[nodiscard]] std::optional<LiveBlock> block_at(std::uint64_t address) const { return blocks_.find(address); }

  // The call that last allocated a block on this page, as far as it is known: of a sample where it begins, else of one
  // of more than a page or that begins there.
  [[nodiscard]] StackId last_on_page(std::uint64_t address) const { return pages_.last(address).stack; }
  [[nodiscard]] BlockKind last_kind_on_page(std::uint64_t address) const { return pages_.last(address); }

  // Of the blocks that are samples.
  [[nodiscard]] const BlockTurnover& turnover() const { return turnover_; }

 private:
  template <bool is_large, typename Event, typename StackOf>
  std::size_t play_some(std::span<const Event> events, std::size_t ahead, StackOf stack_of, LiveBlock& last_released);

  BlockTable blocks_;
  LivePageTable pages_;
  BlockTurnover turnover_;
};

template <typename Event, typename StackOf>
std::size_t LiveSet::play(std::span<const Event> events, std::size_t ahead, StackOf stack_of,
                          LiveBlock& last_released) {
  blocks_.make_room(events.size());
  return blocks_.is_large() ? play_some<true>(events, ahead, stack_of, last_released)
                            : play_some<false>(events, ahead, stack_of, last_released);
}

template <bool is_large, typename Event, typename StackOf>
std::size_t LiveSet::play_some(std::span<const Event> events, std::size_t ahead, StackOf stack_of,
                               LiveBlock& last_released) {
  BlockTable::Hand hand(blocks_);
  struct Played {
    std::uint64_t address;
    BlockTable::PackedBlock block;
  };
  std::array<Played, 2> last{};  // allocated, released
  std::size_t releases = 0;
  const Event* event = events.data();
  for (const Event* const end = event + events.size(); event != end; ++event) {
    if constexpr (is_large) {
      blocks_.prefetch(event[ahead].address);
      pages_.prefetch(event[ahead].address);
    }
    const std::uint64_t address = event->address;
    const std::uint32_t released = event->released(), size_bytes = event->size_bytes;
    StackId stack = kEmptyStack;
    BlockTable::PackedBlock was = 0;
    if (!stack_of(event->stack_id & (released - 1), stack) || !hand.play(released, address, size_bytes, stack, was))
        [[unlikely]]
      break;
    const BlockKind kind{stack, size_class_of(size_bytes)};
    pages_.play(released, address, kind);
    if (size_bytes > kPageBytes && released == 0) [[unlikely]]
      pages_.allocate_rest(address, size_bytes, kind);
    releases += released;
    last[released] = {.address = address, .block = was};
  }
  const auto played = static_cast<std::size_t>(event - events.data());
  hand.add_blocks(played - releases, releases);
  if (const auto [address, block] = last[1]; address != 0)
    last_released = {.address = address,
                     .size_bytes = static_cast<std::uint32_t>(block),
                     .weight = 1,
                     .stack = StackId{static_cast<std::uint32_t>(block >> 32)}};
  return played;
}

}  // namespace whyrss
