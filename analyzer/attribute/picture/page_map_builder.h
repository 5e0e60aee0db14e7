// Makes a PageMap of what rules claim of a walk: parts of pages, in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/evidence.h"
#include "model/page_map.h"

namespace whyrss {

class PageMapBuilder {
 public:
  // Parts of a page may come one by one: the page is what most of it is, of equal parts the first one.
  void add(const PageMapRun& part) { parts_.push_back(part); }
  // With the mappings that have resident pages.
  [[nodiscard]] PageMap build(const std::vector<Vma>& vmas);

 private:
  std::vector<PageMapRun> parts_;
};

}  // namespace whyrss
