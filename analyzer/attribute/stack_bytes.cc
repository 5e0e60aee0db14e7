#include "attribute/stack_bytes.h"

#include <algorithm>
#include <map>

#include "attribute/range_cursor.h"

namespace whyrss {

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
