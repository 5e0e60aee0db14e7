#include "decode/retained_views.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace whyrss {

std::optional<WalkViews> read_views(Bytes payload) {
  // Sizes of addressable memory: their sums stay below 2^63.
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
  ByteReader reader(payload);
  trace::ViewsHeader header{};
  if (!reader.take(header)) return std::nullopt;
  WalkViews views{.walk_end_ns = header.walk_end_ns, .views = {}};
  while (!reader.rest().empty()) {
    trace::RetainingView view{};
    if (!reader.take(view) || view.buffer_bytes > kMostBytes || view.view_bytes > kMostBytes) return std::nullopt;
    views.views.push_back(view);
  }
  return views;
}

void sum_views(const WalkViews& views, const AddressSpace& space, const LiveSet& objects, double time_s,
               std::vector<RetainedViews>& out) {
  std::map<std::pair<StackId, StackId>, RetainedViews> sums;
  std::set<std::uint64_t> seen;  // a buffer counts once, however many views it has
  for (const trace::RetainingView& view : views.views) {
    const StackId made_at = space.block_stack(view.buffer);
    const auto object = objects.block_at(view.view);
    const StackId viewed_at = object ? object->stack : kEmptyStack;
    RetainedViews& sum = sums[{made_at, viewed_at}];
    sum.time_s = time_s;
    sum.made_at = made_at;
    sum.viewed_at = viewed_at;
    ++sum.view_count;
    sum.view_bytes += static_cast<std::int64_t>(view.view_bytes);
    if (!seen.insert(view.buffer).second) continue;
    ++sum.buffer_count;
    sum.buffer_bytes += static_cast<std::int64_t>(view.buffer_bytes);
  }
  for (const auto& [lines, sum] : sums) out.push_back(sum);
}

}  // namespace whyrss
