#include "decode/block_runs.h"

#include <algorithm>

namespace whyrss {
namespace {

std::pair<std::uint64_t, std::uint32_t> place_of(const StoredRun& run) { return {run.lease, run.offset}; }

}  // namespace

void BlockRuns::add(const BlockRun& run, std::uint32_t frame, std::uint32_t index) {
  if (run.clock_ns != 0)
    (run.lease == 0 ? collector_clocks_ : writer_clocks_).push_back({.time_ns = run.clock_ns, .ticks = run.base_ticks});
  if (run.lease == 0) return;
  runs_.push_back({.lease = run.lease,
                   .first_ticks = run.first_ticks,
                   .last_ticks = run.last_ticks,
                   .offset = run.offset,
                   .bytes = run.bytes,
                   .from_offset = 0,
                   .tid = run.tid,
                   .frame = frame,
                   .index = index,
                   .event_count = run.event_count});
}

void BlockRuns::sort() {
  if (!std::ranges::is_sorted(runs_, {}, place_of)) std::ranges::stable_sort(runs_, {}, place_of);
  std::uint64_t lease = 0;
  std::uint32_t done = 0;
  std::size_t kept = 0;
  for (const StoredRun& run : runs_) {
    if (run.lease != lease) done = 0;
    lease = run.lease;
    if (run.offset + run.bytes <= done) continue;
    StoredRun& place = runs_[kept++];
    place = run;
    place.from_offset = done;
    done = run.offset + run.bytes;
  }
  runs_.resize(kept);
  runs_.shrink_to_fit();
}

bool BlockRuns::covers(std::uint64_t lease, std::uint32_t offset, std::uint32_t bytes) const {
  const auto holds = [&](const StoredRun& run) {
    return run.lease == lease && run.offset <= offset && offset + bytes <= run.offset + run.bytes;
  };
  if (last_found_ < runs_.size() && holds(runs_[last_found_])) return true;
  const auto next = std::ranges::upper_bound(runs_, std::pair(lease, offset), {}, place_of);
  if (next == runs_.begin() || !holds(*std::prev(next))) return false;
  last_found_ = static_cast<std::size_t>(std::prev(next) - runs_.begin());
  return true;
}

std::pair<std::uint64_t, std::uint64_t> BlockRuns::ticks_around(std::uint64_t lease, std::uint32_t offset) const {
  std::pair<std::uint64_t, std::uint64_t> ticks{0, std::numeric_limits<std::uint64_t>::max()};
  const auto next = std::ranges::upper_bound(runs_, std::pair(lease, offset), {}, place_of);
  if (next != runs_.end() && next->lease == lease) ticks.second = next->first_ticks;
  if (next != runs_.begin() && std::prev(next)->lease == lease) ticks.first = std::prev(next)->last_ticks;
  return ticks;
}

}  // namespace whyrss
