#include "attribute/live_set.h"

#include <algorithm>
#include <bit>

namespace whyrss {

LivePageTable::LivePageTable(const LivePageTable& other) {
  if (other.root_ == nullptr) return;
  root_ = std::make_unique<Root>();
  for (std::size_t i = 0; i < kEntries; ++i) {
    const auto& from = (*other.root_)[i];
    if (from == nullptr) continue;
    auto& middle = (*root_)[i] = std::make_unique<Middle>();
    for (std::size_t k = 0; k < kEntries; ++k)
      if ((*from)[k] != nullptr) (*middle)[k] = std::make_unique<Leaf>(*(*from)[k]);
  }
}

LivePageTable& LivePageTable::operator=(const LivePageTable& other) {
  if (this != &other) *this = LivePageTable(other);
  return *this;
}

LivePageTable::Leaf& LivePageTable::make_leaf(std::uint64_t page) {
  if (root_ == nullptr) root_ = std::make_unique<Root>();
  auto& middle = (*root_)[page >> (2 * kLevelBits)];
  if (middle == nullptr) middle = std::make_unique<Middle>();
  auto& leaf = (*middle)[(page >> kLevelBits) & kIndexMask];
  leaf = std::make_unique<Leaf>();
  return *leaf;
}

// Moves back what was pushed behind its home by the block that goes, so that no marks of deleted ones are needed.
void LiveSet::erase(std::size_t at) {
  for (std::size_t next = (at + 1) & mask_; slots_[next].key_and_size != 0; next = (next + 1) & mask_) {
    const std::size_t home = home_of(slots_[next].key());
    if (((next - home) & mask_) < ((next - at) & mask_)) continue;  // its home lies behind the gap
    slots_[at] = slots_[next];
    at = next;
  }
  slots_[at].key_and_size = 0;
  --blocks_;
}

void LiveSet::grow() {
  std::vector<Slot> old(std::max<std::size_t>(64, slots_.size() * 2));
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  shift_ = static_cast<unsigned>(64 - std::countr_zero(slots_.size()));
  most_blocks_ = slots_.size() / 2;
  for (const Slot& slot : old) {
    if (slot.key_and_size == 0) continue;
    std::size_t at = home_of(slot.key());
    while (slots_[at].key_and_size != 0) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

void LiveSet::forget(std::uint64_t start, std::uint64_t end) {
  constexpr std::uint64_t kPageBytes = 4096;
  pages_.forget(start, end, [&](std::uint64_t page) {
    const std::uint64_t from = std::max(start + 7, page) & kAddressMask;
    const std::uint64_t until = std::min(end, page + kPageBytes);
    for (std::uint64_t address = from; address < until; address += std::uint64_t{1} << kAlignBits) release(address);
  });
}

}  // namespace whyrss
