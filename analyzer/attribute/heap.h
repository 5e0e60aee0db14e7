// The heap, byte by byte: live, slack, retained, metadata, or not known.
//
//   page of the heap = live + slack (free bytes beside live ones) + metadata (headers of live blocks)
//                    | retained (nothing lives on it, a block once did, or one lies beside it in the same huge page)
//                    | metadata (never held a block, and the allocator mapped it, or it adjoins one that did)
//                    | unknown (never held a recorded block, and no recorded call mapped it)
//
// Totals come from the pages (heap_pages.h) and are exact. Lines come from blocks whose stacks are known: all of them
// in exact mode, Poisson samples of the small ones else. Samples are unbiased one by one (LiveBlock::weight), summed
// per stack and scaled to the exact total of their kind of page; their variance goes with them. Bytes about which no
// sample tells keep the empty stack.
#pragma once

#include "attribute/evidence.h"
#include "attribute/ledger.h"
#include "model/account.h"

namespace whyrss {

struct HeapSummary {
  bool exact = false;  // what is live is known, not estimated from samples
  PymallocBytes pymalloc;
};

// Takes all memory of allocators from the ledger and totals it.
HeapSummary book_heap(Ledger& ledger, const Evidence& evidence, PageMapBuilder* picture = nullptr);

}  // namespace whyrss
