// How often memory was used again for blocks of one kind, and how many there were at once. Of sampled blocks, each of
// which stands for `weight` of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <unordered_map>

#include "model/stack_table.h"

namespace whyrss {

// Blocks of one line and about one size. One line often makes both what stays and what comes and goes at once: a buffer
// that is cut to its result, a list on its way to its final length.
struct BlockKind {
  StackId stack = kEmptyStack;
  std::uint16_t size_class = 0;
};

// An eighth of an octave.
inline constexpr unsigned kSizeFractionBits = 3;
constexpr std::uint16_t size_class_of(std::uint32_t bytes) {
  const auto width = static_cast<unsigned>(std::bit_width(bytes | 1));
  const unsigned drop = std::max(width, kSizeFractionBits + 1) - (kSizeFractionBits + 1);
  return static_cast<std::uint16_t>(width << kSizeFractionBits | ((bytes >> drop) & ((1U << kSizeFractionBits) - 1)));
}
// The smallest size of a class from 8 bytes on.
constexpr std::uint32_t least_bytes_of(std::uint16_t size_class) {
  const unsigned width = size_class >> kSizeFractionBits;
  const std::uint32_t leading = (1U << kSizeFractionBits) | (size_class & ((1U << kSizeFractionBits) - 1));
  return width > kSizeFractionBits ? leading << (width - kSizeFractionBits - 1) : 0;
}

class BlockTurnover {
 public:
  // `usual_weight`: what it would stand for at the usual distance of samples. Rarer ones tell of fewer pages.
  void allocated(BlockKind kind, double weight, double usual_weight) {
    Sums& sums = sums_[key(kind)];
    sums.made += usual_weight;
    sums.live += weight;
    sums.most_live = std::max(sums.most_live, sums.live);
  }
  // Of a block that was allocated.
  void released(BlockKind kind, double weight) { sums_[key(kind)].live -= weight; }

  // The most that were live at one time.
  [[nodiscard]] double most_live(BlockKind kind) const { return sums_of(kind).most_live; }
  // How many were ever made for each one of those, as far as samples could tell of them; 1 where none is known.
  [[nodiscard]] double of(BlockKind kind) const {
    const Sums sums = sums_of(kind);
    return sums.most_live > 0 ? sums.made / sums.most_live : 1;
  }

  [[nodiscard]] static std::uint64_t key(BlockKind kind) {
    return std::uint64_t{static_cast<std::uint32_t>(kind.stack)} << 16 | kind.size_class;
  }

 private:
  struct Sums {
    double made = 0, live = 0, most_live = 0;
  };
  [[nodiscard]] Sums sums_of(BlockKind kind) const {
    const auto found = sums_.find(key(kind));
    return found == sums_.end() ? Sums{} : found->second;
  }

  std::unordered_map<std::uint64_t, Sums> sums_;
};

}  // namespace whyrss
