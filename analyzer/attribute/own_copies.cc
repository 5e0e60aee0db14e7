#include "attribute/own_copies.h"

#include <algorithm>
#include <map>

#include "attribute/range_cursor.h"

namespace whyrss {

std::vector<Range> own_copies(const std::vector<AnonymousRun>& before, const std::vector<AnonymousRun>& now,
                              const std::vector<Range>& elsewhere, std::uint64_t most_pages, std::uint64_t page_bytes) {
  std::vector<Range> copied;
  RangeCursor old_runs(before);
  RangeCursor others(elsewhere);
  for (const AnonymousRun& run : now) {
    if (!run.resident || !run.exclusive) continue;
    for (std::uint64_t at = run.start; at < run.end && most_pages > 0;) {
      const AnonymousRun* old_run = old_runs.at(at);
      const bool taken = others.at(at) != nullptr;
      std::uint64_t end = std::min({run.end, old_runs.boundary(at), others.boundary(at)});
      if (old_run != nullptr && old_run->resident && !old_run->exclusive && !taken) {
        const std::uint64_t pages = std::min((end - at) / page_bytes, most_pages);
        most_pages -= pages;
        if (pages > 0) copied.push_back({at, at + pages * page_bytes});
      }
      at = end;
    }
  }
  return copied;
}

std::vector<StackBytes> bytes_by_stack(const std::vector<Range>& ranges, const std::vector<OwnedRange>& owned) {
  std::map<StackId, std::int64_t> sums;
  RangeCursor owners(owned);
  for (const Range& range : ranges) {
    for (std::uint64_t at = range.start; at < range.end;) {
      const OwnedRange* owner = owners.at(at);
      const std::uint64_t end = std::min(range.end, owners.boundary(at));
      const bool told = owner != nullptr && owner->owner != Owner::allocator;
      sums[told ? owner->stack : kEmptyStack] += static_cast<std::int64_t>(end - at);
      at = end;
    }
  }
  std::vector<StackBytes> result;
  for (const auto& [stack, bytes] : sums) result.push_back({stack, bytes});
  return result;
}

}  // namespace whyrss
