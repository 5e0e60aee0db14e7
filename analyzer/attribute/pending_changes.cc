#include "attribute/pending_changes.h"

#include <algorithm>
#include <utility>

namespace whyrss {
namespace {

bool overlaps_any(const IntervalMap<bool>& map, Range pages) {
  bool any = false;
  map.visit_within(pages.start, pages.end, [&](std::uint64_t, std::uint64_t, bool) { any = true; });
  return any;
}

}  // namespace

void PendingChanges::add(const PendingChange& change) {
  changes_.push_back(change);
  covered_.assign(change.pages.start, change.pages.end, true);
}

bool PendingChanges::overlaps(Range pages) const { return overlaps_any(covered_, pages); }

void PendingChanges::put(const std::vector<PendingChange>& changes) {
  changes_.clear();
  covered_.clear();
  for (const PendingChange& change : changes) add(change);
}

std::vector<PendingChange> PendingChanges::take(Range pages) {
  std::vector<PendingChange> taken, kept;
  if (!overlaps(pages)) return taken;
  IntervalMap<bool> wanted;
  wanted.assign(pages.start, pages.end, true);
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
    const bool is_wanted = overlaps_any(wanted, change->pages);
    if (is_wanted) wanted.assign(change->pages.start, change->pages.end, true);
    (is_wanted ? taken : kept).push_back(*change);
  }
  std::ranges::reverse(taken);
  std::ranges::reverse(kept);
  put(kept);
  return taken;
}

std::vector<PendingChange> PendingChanges::take_all() {
  covered_.clear();
  return std::exchange(changes_, {});
}

bool PendingChanges::cancel_release(std::uint64_t address, std::uint32_t tid) {
  const auto found = std::find_if(changes_.rbegin(), changes_.rend(), [&](const PendingChange& change) {
    return change.kind == PendingChange::Kind::release && change.range.start == address && change.tid == tid;
  });
  if (found == changes_.rend()) return false;
  changes_.erase(std::next(found).base());
  put(take_all());
  return true;
}

}  // namespace whyrss
