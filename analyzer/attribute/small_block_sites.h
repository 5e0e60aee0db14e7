// Which lines made the small blocks on some pages of a heap: of blocks that are not followed one by one, those that
// were sampled speak for the others.
#pragma once

#include <vector>

#include "attribute/evidence.h"
#include "attribute/heap_shares.h"
#include "attribute/live_set.h"

namespace whyrss {

// Shares of the bytes of `ranges` (sorted, disjoint), which have no other owner; together at most these bytes: where
// few live blocks lie the rest stays without a site.
std::vector<HeapShares::Share> small_block_sites(const std::vector<Range>& ranges, const LiveSet& blocks);

}  // namespace whyrss
