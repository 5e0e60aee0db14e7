#include "attribute/lazy_pages.h"

#include <algorithm>
#include <tuple>

#include "attribute/heap_pages.h"
#include "attribute/interval_map.h"

namespace whyrss {
namespace {

// Calls visit(start, end) for each part of [start, end) that lies in one of the ranges.
template <typename Ranged, typename Visit>
void visit_overlaps(const std::vector<Ranged>& ranges, std::uint64_t start, std::uint64_t end, Visit visit) {
  auto at = std::ranges::upper_bound(ranges, start, {}, &Ranged::end);
  for (; at != ranges.end() && at->start < end; ++at) visit(std::max(at->start, start), std::min(at->end, end));
}

// Only these can be given up so.
std::vector<Range> private_anonymous_pages(const Evidence& evidence) {
  std::vector<Range> pages;
  for (const ResidentRun& run : evidence.runs) {
    const auto vma = std::ranges::upper_bound(evidence.vmas, run.start, {}, &Vma::end);
    if (run.file || vma == evidence.vmas.end() || vma->start > run.start || !is_private_anonymous(*vma)) continue;
    if (!pages.empty() && pages.back().end == run.start)
      pages.back().end = run.end;
    else
      pages.push_back({run.start, run.end});
  }
  return pages;
}

// Of all pages in `within`, those on which a small block is known to live.
std::vector<Range> live_pages(const Evidence& evidence, const std::vector<AdvisedRange>& within) {
  std::vector<std::uint64_t> starts;
  for (const LivePages& stretch : evidence.live_pages)
    visit_overlaps(within, stretch.start, stretch.end(), [&](std::uint64_t start, std::uint64_t end) {
      for (std::uint64_t at = start - start % kLivePageBytes; at < end; at += kLivePageBytes)
        if (stretch.pages[(at - stretch.start) / kLivePageBytes].live_bytes > 0) starts.push_back(at);
    });
  if (!evidence.has_liveness && evidence.small_blocks != nullptr)
    evidence.small_blocks->for_each([&](const LiveBlock& block) {
      visit_pages(block.address, block.size_bytes, [&](std::uint64_t at, std::int64_t) {
        visit_overlaps(within, at, at + 1,
                       [&](std::uint64_t, std::uint64_t) { starts.push_back(at - at % kLivePageBytes); });
      });
    });
  std::ranges::sort(starts);
  std::vector<Range> pages;
  for (const std::uint64_t start : starts) {
    if (pages.empty() || pages.back().end < start)
      pages.push_back({start, start + kLivePageBytes});
    else
      pages.back().end = start + kLivePageBytes;
  }
  return pages;
}

// What of `range` lies on none of the pages.
void add_parts_between(const std::vector<Range>& pages, AdvisedRange range, std::vector<AdvisedRange>& parts) {
  const std::uint64_t end = range.end;
  const auto add_until = [&](std::uint64_t until) {
    range.end = until;
    if (range.start < until) parts.push_back(range);
  };
  visit_overlaps(pages, range.start, end, [&](std::uint64_t from, std::uint64_t to) {
    add_until(from);
    range.start = to;
  });
  add_until(end);
}

}  // namespace

std::vector<LazyRange> find_lazy_pages(const std::vector<LazyFreeSum>& sums, const std::vector<AdvisedRange>& advised,
                                       const std::vector<Range>& advised_later, const Evidence& evidence) {
  const std::vector<Range> resident = private_anonymous_pages(evidence);
  const std::vector<Range> live = live_pages(evidence, advised);
  IntervalMap<bool> later;  // were not given up yet when they were walked
  for (const Range& range : advised_later) later.assign(range.start, range.end, true);
  for (const AdvisedRange& range : advised) later.erase(range.start, range.end);

  std::vector<LazyRange> found;
  for (const LazyFreeSum& sum : sums) {
    std::int64_t left_bytes = sum.bytes;
    later.visit_within(sum.start, sum.end, [&](std::uint64_t start, std::uint64_t end, bool) {
      visit_overlaps(resident, start, end,
                     [&](std::uint64_t from, std::uint64_t to) { left_bytes -= static_cast<std::int64_t>(to - from); });
    });
    std::vector<AdvisedRange> parts;
    auto range = std::ranges::upper_bound(advised, sum.start, {}, &AdvisedRange::end);
    for (; range != advised.end() && range->start < sum.end; ++range)
      visit_overlaps(resident, std::max(range->start, sum.start), std::min(range->end, sum.end),
                     [&](std::uint64_t start, std::uint64_t end) {
                       add_parts_between(live, {start, end, range->stack, range->order, range->reused}, parts);
                     });
    // Of one call the highest addresses: programs and allocators begin to use a range again at its start.
    std::ranges::sort(parts, [](const AdvisedRange& a, const AdvisedRange& b) {
      return std::tuple(!a.reused, a.order, a.start) > std::tuple(!b.reused, b.order, b.start);
    });
    for (const AdvisedRange& part : parts) {
      if (left_bytes <= 0) break;
      const std::uint64_t bytes = std::min(part.end - part.start, static_cast<std::uint64_t>(left_bytes));
      found.push_back({part.end - bytes, part.end, part.stack});
      left_bytes -= static_cast<std::int64_t>(bytes);
    }
  }
  std::ranges::sort(found, {}, &LazyRange::start);
  return found;
}

}  // namespace whyrss
