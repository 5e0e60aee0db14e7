// The rule allocator-growth: memory of an allocator inside a library, of which no call says what is in use and what
// free.
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
  [[nodiscard]] std::string text() const;  // "of Arrow's memory pool (mimalloc)"
};

// Of sites of Cause::heap_unsplit; what grew most first.
std::vector<AllocatorBytes> unsplit_by_allocator(const StackTable& stacks, const std::vector<SiteView>& sites);

void allocator_growth(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
