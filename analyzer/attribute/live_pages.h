// Per page: how many live blocks begin there, and which call allocated the last one. Three levels over addresses below
// 2^48, so that what was never used costs nothing; a leaf is 32 KiB for 16 MiB of addresses. Copies are deep.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

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
    last_leaf_ = other.last_leaf_ = nullptr;
    return *this;
  }
  ~LivePageTable() = default;

  // Addresses are below 2^48. `is_new`: no block that begins there was live.
  void allocate(std::uint64_t address, StackId stack, bool is_new) {
    Page& page = page_for(address >> kPageShift);
    page.last = stack;
    page.live += is_new ? 1 : 0;
  }
  // Inlined always, as LiveSet's: by itself g++ takes it for a function without effect.
  [[gnu::always_inline]] void prefetch(std::uint64_t address) const {
    const Leaf* leaf = find_leaf(address >> kPageShift);
    if (leaf != nullptr) __builtin_prefetch(&(*leaf)[(address >> kPageShift) & kIndexMask], 1);
  }
  // Of a block that was allocated.
  void release(std::uint64_t address) { --page_for(address >> kPageShift).live; }
  [[nodiscard]] StackId last(std::uint64_t address) const {
    const Leaf* leaf = find_leaf(address >> kPageShift);
    return leaf == nullptr ? kEmptyStack : (*leaf)[(address >> kPageShift) & kIndexMask].last;
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
    std::uint32_t live = 0;
  };
  using Leaf = std::array<Page, kEntries>;
  using Middle = std::array<std::unique_ptr<Leaf>, kEntries>;
  using Root = std::array<std::unique_ptr<Middle>, kEntries>;

  [[nodiscard]] Leaf* find_leaf(std::uint64_t page) const {
    if (root_ == nullptr || (page >> (3 * kLevelBits)) != 0) return nullptr;
    const auto& middle = (*root_)[page >> (2 * kLevelBits)];
    return middle == nullptr ? nullptr : (*middle)[(page >> kLevelBits) & kIndexMask].get();
  }
  // Mostly it is in the leaf of the last one.
  Page& page_for(std::uint64_t page) {
    if (page >> kLevelBits != last_number_ || last_leaf_ == nullptr) find_or_make(page);
    return (*last_leaf_)[page & kIndexMask];
  }
  void find_or_make(std::uint64_t page) {
    Leaf* leaf = find_leaf(page);
    last_leaf_ = leaf != nullptr ? leaf : &make_leaf(page);
    last_number_ = page >> kLevelBits;
  }
  Leaf& make_leaf(std::uint64_t page);

  std::unique_ptr<Root> root_;
  Leaf* last_leaf_ = nullptr;
  std::uint64_t last_number_ = 0;
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
