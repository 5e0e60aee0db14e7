#include "attribute/copy_blame.h"

#include <limits>
#include <map>
#include <utility>

#include "attribute/range_cursor.h"
#include "attribute/stack_bytes.h"

namespace whyrss {
namespace {

struct Written {
  std::int64_t bytes = 0;
  double variance = 0;
};

}  // namespace

void blame_copies(const std::vector<Range>& ranges, const std::vector<OwnedRange>& owned, const CopyBlame& blame,
                  std::vector<CowSlice>& slices) {
  std::map<std::pair<StackId, StackId>, Written> written;  // by who allocated, who wrote
  RangeCursor owners(owned);
  const auto page = static_cast<double>(blame.page_bytes);
  for (const Range& range : ranges) {
    const auto samples =
        blame.touched.copy_candidates(range.start, range.end, 0, std::numeric_limits<std::uint64_t>::max());
    for (const TouchSample& sample : samples) {
      if (sample.stack == kEmptyStack) continue;
      const OwnedRange* owner = owners.at(sample.page);
      const bool told = owner != nullptr && owner->owner != Owner::allocator;
      Written& sum = written[{told ? owner->stack : kEmptyStack, sample.stack}];
      const double weight = sample.weight;
      sum.bytes += static_cast<std::int64_t>(sample.weight * blame.page_bytes);
      sum.variance += weight * (weight - 1) * page * page;
    }
  }
  std::map<StackId, std::int64_t> rest;
  for (const StackBytes& sum : bytes_by_stack(ranges, owned)) rest[sum.stack] += sum.bytes;
  for (const auto& [stacks, sum] : written) {
    rest[stacks.first] -= sum.bytes;
    slices.push_back({.time_s = blame.time_s,
                      .allocated_at = stacks.first,
                      .written_at = stacks.second,
                      .copied_bytes = sum.bytes,
                      .variance = sum.variance});
  }
  for (const auto& [stack, bytes] : rest)
    if (bytes != 0) slices.push_back({.time_s = blame.time_s, .allocated_at = stack, .copied_bytes = bytes});
}

}  // namespace whyrss
