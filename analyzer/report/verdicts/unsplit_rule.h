// Memory of allocators inside libraries, and the rule allocator-growth: where no call says what of it is in use and
// what free.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// What one of them holds.
struct AllocatorBytes {
  std::string name, library;  // as people call it, and the path of what holds it
  std::string_view kind;
  std::int64_t growth = 0, resident = 0;  // resident: at the end of the interval
  std::vector<SiteView> sites;
  [[nodiscard]] std::string text() const;  // "Arrow's memory pool (mimalloc)"
};

// Of sites of a cause of the heap; what grew most first. What serves malloc is left out.
std::vector<AllocatorBytes> by_allocator(const StackTable& stacks, Cause cause, const std::vector<SiteView>& sites);

// How it gives back what is free.
std::string_view way_back(const AllocatorBytes& allocator);

void allocator_growth(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
