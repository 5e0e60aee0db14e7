#include "attribute/live_set.h"

#include <algorithm>

#include "support/page_size.h"

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

void LiveSet::forget(std::uint64_t start, std::uint64_t end) {
  pages_.forget(start, end, [&](std::uint64_t page) {
    const std::uint64_t from = std::max(start + 7, page) & BlockTable::kAddressMask;
    const std::uint64_t until = std::min(end, page + kPageBytes);
    for (std::uint64_t address = from; address < until; address += 8) release(address);
  });
}

}  // namespace whyrss
