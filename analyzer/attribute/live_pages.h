// Per page: how many live blocks begin there, and which call allocated the last one, of which size. Three levels over
// addresses below 2^48, so that what was never used costs nothing; a leaf is 32 KiB for 16 MiB of addresses. Copies are
// deep.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "attribute/block_turnover.h"
#include "model/stack_table.h"

namespace whyrss {

class LivePageTable {
 public:
  LivePageTable() = default;
  LivePageTable(const LivePageTable& other);
  LivePageTable(LivePageTable&& other) noexcept { *this = std::move(other); }
  LivePageTable& operator=(const LivePageTable& other);
  LivePageTable& operator=(LivePageTable&& other) noexcept {
    root_ = std::move(other.root_);
    leaves_ = std::exchange(other.leaves_, {});
    return *this;
  }
  ~LivePageTable() = default;

  // Addresses are below 2^48. `is_new`: no block that begins there was live.
  void allocate(std::uint64_t address, BlockKind kind, bool is_new) {
    Page& page = page_for(address >> kPageShift);
    page.set_last(kind);
    page.live = static_cast<std::uint16_t>(page.live + (is_new ? 1 : 0));
  }
  // The pages behind the one that the block begins on.
  void allocate_rest(std::uint64_t address, std::uint64_t size_bytes, BlockKind kind) {
    const std::uint64_t last = (address + size_bytes - 1) >> kPageShift;
    for (std::uint64_t number = (address >> kPageShift) + 1; number <= last; ++number) page_for(number).set_last(kind);
  }
  // Of a block that was allocated.
  void release(std::uint64_t address) { --page_for(address >> kPageShift).live; }
  // Either, without a branch on it: `released` is 1 or 0; of a release `kind` does not matter.
  [[gnu::always_inline]] void play(std::uint32_t released, std::uint64_t address, BlockKind kind) {
    Page& page = page_for(address >> kPageShift);
    const std::uint64_t kept = 0 - std::uint64_t{released};
    const auto is = std::bit_cast<std::uint64_t>(page);
    const auto becomes =
        std::bit_cast<std::uint64_t>(Page{.last = kind.stack, .last_size_class = kind.size_class, .live = page.live});
    // In one store, or the next load of the page would have to wait.
    constexpr auto kOne = std::bit_cast<std::uint64_t>(Page{.last = {}, .last_size_class = 0, .live = 1});
    page = std::bit_cast<Page>(((is & kept) | (becomes & ~kept)) + kOne - 2 * (kOne & kept));
  }
  // Inlined always: by itself g++ takes it for a function without effect.
  [[gnu::always_inline]] void prefetch(std::uint64_t address) const {
    const std::uint64_t page = address >> kPageShift;
    const KnownLeaf& known = leaves_[page >> kLevelBits & (kKnownLeaves - 1)];
    if (known.leaf != nullptr) __builtin_prefetch(&(*known.leaf)[page & kIndexMask], 1);
  }
  [[nodiscard]] BlockKind last(std::uint64_t address) const {
    const Leaf* leaf = find_leaf(address >> kPageShift);
    if (leaf == nullptr) return {};
    const Page& page = (*leaf)[(address >> kPageShift) & kIndexMask];
    return {page.last, page.last_size_class};
  }

  // Calls visit(page address) for each page with live blocks that overlaps [start, end), in order; forgets who
  // allocated last on the pages that lie in it as a whole.
  template <typename Visit>
  void forget(std::uint64_t start, std::uint64_t end, Visit visit);

 private:
  static constexpr unsigned kPageShift = 12, kLevelBits = 12;
  static constexpr std::size_t kEntries = std::size_t{1} << kLevelBits;
  static constexpr std::uint64_t kIndexMask = kEntries - 1;
  struct Page {
    StackId last = kEmptyStack;
    std::uint16_t last_size_class = 0;
    std::uint16_t live = 0;  // at most one at each multiple of 8

    void set_last(BlockKind kind) {
      last = kind.stack;
      last_size_class = kind.size_class;
    }
  };
  using Leaf = std::array<Page, kEntries>;
  using Middle = std::array<std::unique_ptr<Leaf>, kEntries>;
  using Root = std::array<std::unique_ptr<Middle>, kEntries>;
  struct KnownLeaf {
    std::uint64_t number = 0;
    Leaf* leaf = nullptr;
  };
  static constexpr std::size_t kKnownLeaves = 64;  // 1 GiB

  [[nodiscard]] Leaf* find_leaf(std::uint64_t page) const {
    if (root_ == nullptr || (page >> (3 * kLevelBits)) != 0) return nullptr;
    const auto& middle = (*root_)[page >> (2 * kLevelBits)];
    return middle == nullptr ? nullptr : (*middle)[(page >> kLevelBits) & kIndexMask].get();
  }
  // Mostly it is in a leaf that was met lately.
  Page& page_for(std::uint64_t page) {
    KnownLeaf& known = leaves_[page >> kLevelBits & (kKnownLeaves - 1)];
    Leaf* leaf = known.leaf;
    if (page >> kLevelBits != known.number || leaf == nullptr) [[unlikely]] {
      leaf = &find_or_make(page);
      known = {.number = page >> kLevelBits, .leaf = leaf};
    }
    return (*leaf)[page & kIndexMask];
  }
  Leaf& find_or_make(std::uint64_t page) {
    Leaf* leaf = find_leaf(page);
    return leaf != nullptr ? *leaf : make_leaf(page);
  }
  Leaf& make_leaf(std::uint64_t page);

  std::unique_ptr<Root> root_;
  std::array<KnownLeaf, kKnownLeaves> leaves_{};  // by the last bits of their number
};

template <typename Visit>
void LivePageTable::forget(std::uint64_t start, std::uint64_t end, Visit visit) {
  constexpr std::uint64_t kEndPage = std::uint64_t{1} << (3 * kLevelBits);
  if (root_ == nullptr || start >= end) return;
  const std::uint64_t end_page = std::min(((end - 1) >> kPageShift) + 1, kEndPage);
  for (std::uint64_t page = start >> kPageShift; page < end_page;) {
    const auto& middle = (*root_)[page >> (2 * kLevelBits)];
    if (middle == nullptr) {
      page = ((page >> (2 * kLevelBits)) + 1) << (2 * kLevelBits);
      continue;
    }
    Leaf* leaf = (*middle)[(page >> kLevelBits) & kIndexMask].get();
    const std::uint64_t leaf_end = std::min(((page >> kLevelBits) + 1) << kLevelBits, end_page);
    for (; leaf != nullptr && page < leaf_end; ++page) {
      Page& entry = (*leaf)[page & kIndexMask];
      const std::uint64_t address = page << kPageShift;
      if (entry.live > 0) visit(address);
      if (address >= start && end - address >= (std::uint64_t{1} << kPageShift)) entry.last = kEmptyStack;
    }
    page = leaf_end;
  }
}

}  // namespace whyrss
