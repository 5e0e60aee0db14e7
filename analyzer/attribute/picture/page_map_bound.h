// Pictures of address spaces in bounded size: where neighbouring pages differ too often, larger cells are shown as one.
#pragma once

#include <cstddef>
#include <vector>

#include "model/page_map.h"

namespace whyrss {

// Gives the mappings of `map` those of `ages` that lie in them, then doubles the cells of those with the most entries
// until all together have at most `most`. A cell is what most of its resident pages are; how full those of heap_live
// are is their mean. Mappings that still do not fit are left out, the smallest ones first.
void finish_picture(PageMap& map, const std::vector<PageAge>& ages, std::size_t most);

}  // namespace whyrss
