// Since when pages have been resident, as far as walks tell: a page that went and came between two walks stays.
#pragma once

#include <vector>

#include "attribute/evidence.h"
#include "model/page_map.h"

namespace whyrss {

class PageAges {
 public:
  // The runs of a walk; times never decrease.
  void observe(const std::vector<ResidentRun>& runs, double time_s);
  // As of the last walk.
  [[nodiscard]] const std::vector<PageAge>& ages() const { return ages_; }
  // Another program takes the process over.
  void clear() { ages_.clear(); }

 private:
  std::vector<PageAge> ages_;
};

}  // namespace whyrss
