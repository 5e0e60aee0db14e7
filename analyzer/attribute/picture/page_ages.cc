#include "attribute/picture/page_ages.h"

#include <algorithm>
#include <utility>

#include "attribute/range_cursor.h"

namespace whyrss {

void PageAges::observe(const std::vector<ResidentRun>& runs, double time_s) {
  const std::vector<PageAge> before = std::exchange(ages_, {});
  RangeCursor known(before);
  for (const ResidentRun& run : runs)
    for (std::uint64_t at = run.start; at < run.end;) {
      const PageAge* const age = known.at(at);
      const PageAge now{at, std::min(run.end, known.boundary(at)), age != nullptr ? age->since_s : time_s};
      append_joined(ages_, now);
      at = now.end;
    }
}

}  // namespace whyrss
