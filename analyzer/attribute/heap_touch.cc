#include "attribute/heap_touch.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace whyrss {
namespace {

// A page without a known last holder takes that of a neighbour at most this far away.
constexpr std::size_t kMostNeighbours = 64;

std::pair<std::uint32_t, Cause> kind_of(const HeapTouchPart& part) { return {part.stratum, part.cause}; }

template <typename Block>
std::pair<std::uint32_t, std::uint64_t> place_of(const Block& block) {
  return {block.stratum, block.address};
}

// Of a page where nothing lives.
Cause cause_of_free(const HeapPage& page) {
  if (page.ever_held || page.blockless == BlocklessPage::huge_page) return Cause::heap_retained;
  return page.blockless == BlocklessPage::metadata ? Cause::heap_metadata : Cause::unknown;
}

}  // namespace

StackId last_holder(const Evidence& evidence, const HeapPage& page, const HeapStratum& stratum) {
  const StackId last = evidence.small_blocks == nullptr ? kEmptyStack : evidence.small_blocks->last_on_page(page.start);
  if (last != kEmptyStack) return last;
  return stratum.pymalloc ? page.mapped_stack : page.held_stack;
}

HeapTouch::HeapTouch(const Evidence& evidence, const HeapPages& pages, const std::vector<bool>& by_arena,
                     const FirstTouchShares& touches, const std::vector<Fragment>& heap)
    : evidence_(evidence), pages_(pages), by_arena_(by_arena), touches_(touches) {
  if (touches_.empty()) return;
  collect_blocks(heap);
  visit_touched_pages(heap,
                      [&](const HeapPage& page, std::uint32_t range, double bytes) { add_page(page, range, bytes); });
  std::ranges::stable_sort(parts_, {}, kind_of);
}

std::span<const HeapTouchPart> HeapTouch::parts(std::uint32_t stratum, Cause cause) const {
  const auto first = std::ranges::lower_bound(parts_, std::pair(stratum, cause), {}, kind_of);
  const auto last = std::ranges::upper_bound(parts_, std::pair(stratum, cause), {}, kind_of);
  return {first, last};
}

template <typename Visit>
void HeapTouch::visit_touched_pages(const std::vector<Fragment>& heap, Visit visit) const {
  for (const Fragment& fragment : heap) {
    if (fragment.owned_by(Owner::block)) continue;
    touches_.visit_within(fragment.start, fragment.end, [&](std::uint32_t range, std::uint64_t from, std::uint64_t to) {
      while (from < to) {
        const std::uint64_t end = std::min(to, (from / kLivePageBytes + 1) * kLivePageBytes);
        if (const HeapPage* page = pages_.page(from)) visit(*page, range, static_cast<double>(end - from));
        from = end;
      }
    });
  }
}

// Of exact mode's millions only those on pages that were touched.
void HeapTouch::collect_blocks(const std::vector<Fragment>& heap) {
  if (evidence_.small_blocks == nullptr) return;
  const HeapPage* const first = pages_.pages().data();
  std::vector<bool> touched(pages_.pages().size());
  visit_touched_pages(heap, [&](const HeapPage& page, std::uint32_t, double) {
    touched[static_cast<std::size_t>(&page - first)] = true;
  });
  evidence_.small_blocks->for_each([&](const LiveBlock& block) {
    visit_pages(block.address, block.size_bytes, [&](std::uint64_t at, std::int64_t bytes) {
      const HeapPage* page = pages_.page(at);
      if (page == nullptr || (evidence_.exact_blocks && !touched[static_cast<std::size_t>(page - first)])) return;
      blocks_.push_back({at, page->stratum, block.stack, static_cast<double>(bytes)});
    });
  });
  std::ranges::sort(blocks_, {}, place_of<Block>);
}

template <typename Add>
void HeapTouch::visit_small(const HeapPage& page, Add add) const {
  if (by_arena_[page.stratum]) return add(page.mapped_stack, 1.0);
  const auto first = std::ranges::lower_bound(blocks_, std::pair(page.stratum, page.start), {}, place_of<Block>);
  if (!evidence_.exact_blocks) return add(nearest_block(page, first), 1.0);
  double known_bytes = 0;
  auto end = first;
  for (; end != blocks_.end() && end->stratum == page.stratum && end->address < page.start + kLivePageBytes; ++end)
    known_bytes += end->live_bytes;
  const double whole = std::max<double>(known_bytes, page.small_bytes);
  if (whole <= 0) return add(kEmptyStack, 1.0);
  for (auto at = first; at != end; ++at) add(at->stack, at->live_bytes / whole);
  if (known_bytes < whole) add(kEmptyStack, 1 - known_bytes / whole);
}

// `first`: at or behind the start of the page.
StackId HeapTouch::nearest_block(const HeapPage& page, Blocks::const_iterator first) const {
  const bool has_after = first != blocks_.end() && first->stratum == page.stratum;
  const bool has_before = first != blocks_.begin() && std::prev(first)->stratum == page.stratum;
  if (!has_before) return has_after ? first->stack : kEmptyStack;
  const bool after = has_after && first->address - page.start <= page.start - std::prev(first)->address;
  return (after ? first : std::prev(first))->stack;
}

StackId HeapTouch::nearest_holder(const HeapPage& page, const HeapStratum& stratum) const {
  const auto& pages = pages_.pages();
  const auto place = static_cast<std::size_t>(&page - pages.data());
  for (std::size_t away = 0; away <= kMostNeighbours; ++away) {
    for (const std::size_t at : {place - away, place + away}) {  // below the first: no index either
      if (at >= pages.size() || pages[at].stratum != page.stratum || pages[at].live_bytes() > 0) continue;
      if (const StackId holder = last_holder(evidence_, pages[at], stratum); holder != kEmptyStack) return holder;
    }
    if (evidence_.exact_blocks) break;  // nothing was left out
  }
  return kEmptyStack;
}

void HeapTouch::add_page(const HeapPage& page, std::uint32_t range, double bytes) {
  const HeapStratum& stratum = pages_.strata()[page.stratum];
  const auto add = [&](Cause cause, StackId site, double part_bytes) {
    if (part_bytes > 0) parts_.push_back({cause, page.stratum, site, {range, part_bytes}});
  };
  const double small = page.small_bytes;
  const auto free = static_cast<double>(page.free_bytes());
  if (small + free <= 0) return;
  const double live_part = bytes * small / (small + free), free_part = bytes - live_part;
  visit_small(page, [&](StackId stack, double share) {
    add(Cause::heap_live, stack, live_part * share);
    if (!pages_.knows(stratum)) return add(Cause::heap_live, stack, free_part * share);
    if (page.live_bytes() == 0) return;
    const double pinned = by_arena_[page.stratum] ? 1 : small / static_cast<double>(page.live_bytes());
    add(Cause::heap_slack, stack, free_part * share * pinned);
  });
  if (!pages_.knows(stratum)) return;
  if (page.live_bytes() == 0 && is_unsplit(evidence_, page, stratum))
    return add(Cause::heap_unsplit, page.mapped_stack, free_part);
  if (page.live_bytes() == 0)
    return add(cause_of_free(page), page.ever_held ? nearest_holder(page, stratum) : kEmptyStack, free_part);
  if (by_arena_[page.stratum]) return;
  for (const LargePart& large : pages_.large_parts_on(page))
    add(Cause::heap_slack, large.stack, free_part * large.bytes / static_cast<double>(page.live_bytes()));
}

}  // namespace whyrss
