// Who made heap pages resident, by the sites that share them: a page's touch belongs to what is on the page in
// proportion, live, free and kept bytes alike.
//
// Whose blocks are on a page is known where all blocks are (exact mode) or one call made them all (CPython's arenas);
// of sampled blocks the nearest one tells, as neighbours are mostly of one line.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/first_touch_shares.h"
#include "attribute/heap_pages.h"
#include "attribute/ledger.h"
#include "model/cause.h"

namespace whyrss {

// The call whose block was the last on a page where nothing lives, as far as that is known.
StackId last_holder(const Evidence& evidence, const HeapPage& page, const HeapStratum& stratum);

struct HeapTouchPart {
  Cause cause = Cause::heap_live;
  std::uint32_t stratum = 0;
  StackId site = kEmptyStack;  // as the heap's totals name it; empty: not known
  TouchPart part;
};

class HeapTouch {
 public:
  // `heap`: its fragments. `by_arena`, by stratum: live bytes stand under the page's mapping. The arguments must
  // outlive this.
  HeapTouch(const Evidence& evidence, const HeapPages& pages, const std::vector<bool>& by_arena,
            const FirstTouchShares& touches, const std::vector<Fragment>& heap);

  // By address. Large blocks are not among them.
  [[nodiscard]] std::span<const HeapTouchPart> parts(std::uint32_t stratum, Cause cause) const;

 private:
  struct Block {
    std::uint64_t address = 0;
    std::uint32_t stratum = 0;
    StackId stack = kEmptyStack;
    double live_bytes = 0;  // on this page
  };
  using Blocks = std::vector<Block>;  // by stratum, then address

  template <typename Visit>
  void visit_touched_pages(const std::vector<Fragment>& heap, Visit visit) const;
  void collect_blocks(const std::vector<Fragment>& heap);
  void add_page(const HeapPage& page, std::uint32_t range, double bytes);
  // Calls add(stack, share) for the small blocks of a page; the shares sum to 1.
  template <typename Add>
  void visit_small(const HeapPage& page, Add add) const;
  [[nodiscard]] StackId nearest_block(const HeapPage& page, Blocks::const_iterator first) const;
  [[nodiscard]] StackId nearest_holder(const HeapPage& page, const HeapStratum& stratum) const;

  const Evidence& evidence_;
  const HeapPages& pages_;
  const std::vector<bool>& by_arena_;
  const FirstTouchShares& touches_;
  Blocks blocks_;
  std::vector<HeapTouchPart> parts_;  // by stratum and cause, then address
};

}  // namespace whyrss
