#include "replay/file_pages.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace whyrss {

void FilePages::forget(std::uint64_t start, std::uint64_t size_bytes, bool during_walk) {
  const std::uint64_t end = start + std::min(size_bytes, std::numeric_limits<std::uint64_t>::max() - start);
  resident_.erase(start, end);
  if (during_walk) forgotten_.push_back({start, end});
}

std::int64_t FilePages::observe(const WalkedPages& pages) {
  if (pages.smaps_only || pages.partial) return 0;
  for (const ResidentRun& run : pages.runs) resident_.erase(run.start, run.end);
  std::uint64_t gone_bytes = 0;
  for (const Vma& vma : pages.vmas)
    if (vma.backing == Backing::file)
      resident_.visit_within(vma.start, vma.end, [&](std::uint64_t start, std::uint64_t end, std::size_t name) {
        if (names_[name] == vma.path) gone_bytes += end - start;
      });
  resident_.clear();
  names_.clear();
  auto run = pages.runs.begin();
  for (const Vma& vma : pages.vmas) {
    if (vma.backing != Backing::file) continue;
    names_.push_back(vma.path);
    run = std::find_if(run, pages.runs.end(), [&](const ResidentRun& at) { return at.start >= vma.start; });
    for (; run != pages.runs.end() && run->start < vma.end; ++run)
      if (run->file) resident_.assign(run->start, run->end, names_.size() - 1);
  }
  for (const Range& range : std::exchange(forgotten_, {})) resident_.erase(range.start, range.end);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(gone_bytes, kMost));
}

}  // namespace whyrss
