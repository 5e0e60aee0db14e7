// Which lines the allocator's free pages are attributed to, where only some blocks were sampled.
//
// A page tells its last line if one of the blocks that ever began on it was a sample. Memory that was used again and
// again had more of them, and so tells more often: a page that blocks of one kind filled c times on the way tells with
// the probability 1 - exp(-c * rate), by independent samples of bytes. `rate`, samples of one filling, is the one with
// which the pages that tell make up all pages. Blocks that come and go at once pass over many pages on which others
// stay: a kind counts for no more pages than the blocks can lie on that it ever had at the same time.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "attribute/block_turnover.h"
#include "attribute/heap_shares.h"

namespace whyrss {

class RetainedWeights {
 public:
  // A page that does not tell.
  void add_silent() { ++pages_; }
  // A page, and the kind of the block that is known to have been allocated on it last.
  void add(BlockKind last, std::int64_t bytes);
  // What tells, weighted so that it speaks for all.
  void add_to(HeapShares& shares, const BlockTurnover& turnover) const;

 private:
  struct Pages {
    BlockKind kind;
    double count = 0, bytes = 0;
  };
  // How many pages each one that tells this kind speaks for; below 1 where most were others'.
  [[nodiscard]] static double weight_of(const Pages& last_known, const BlockTurnover& turnover, double rate);
  [[nodiscard]] double rate(const BlockTurnover& turnover) const;

  std::unordered_map<std::uint64_t, Pages> by_kind_;
  std::int64_t pages_ = 0;
};

}  // namespace whyrss
