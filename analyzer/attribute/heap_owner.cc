#include "attribute/heap_owner.h"

#include <algorithm>

#include "attribute/range_cursor.h"
#include "attribute/rules.h"

namespace whyrss {
namespace {

// Of a VMA where no block lies or lay: glibc makes an arena writable from its boundary on as it needs it, and leaves
// the rest up to the next boundary without access (new_heap, grow_heap in malloc/arena.c). Other memory that crosses a
// boundary does not end so.
bool in_glibc_arena(const Evidence& evidence, const Fragment& fragment) {
  const Vma& vma = *fragment.vma;
  const std::uint64_t boundary = fragment.start / kGlibcArenaBytes * kGlibcArenaBytes;
  if (!vma.writable || boundary < vma.start || fragment.vma_index + 1 == evidence.vmas.size()) return false;
  const Vma& rest = evidence.vmas[fragment.vma_index + 1];
  const std::uint64_t last_boundary = vma.end / kGlibcArenaBytes * kGlibcArenaBytes;
  return rest.start == vma.end && rest.path.empty() && rest.backing == Backing::anonymous && !rest.writable &&
         rest.end - last_boundary >= kGlibcArenaBytes;
}

template <typename Ranged>
const Ranged* range_at(const std::vector<Ranged>& ranges, std::uint64_t address) {
  const auto found = std::ranges::upper_bound(ranges, address, {}, &Ranged::end);
  return found != ranges.end() && found->start <= address ? &*found : nullptr;
}

}  // namespace

HeapOwner::HeapOwner(const Evidence& evidence)
    : evidence_(evidence), holds_blocks_(evidence.owned.size()), held_blocks_(evidence.vmas.size()) {
  for (std::size_t i = 0; i < evidence.vmas.size(); ++i) {
    const auto first = std::ranges::upper_bound(evidence.held_blocks, evidence.vmas[i].start, {}, &HeldRange::end);
    held_blocks_[i] = first != evidence.held_blocks.end() && first->start < evidence.vmas[i].end;
  }
  for (const LivePages& pages : evidence.live_pages) see_pages(pages);
  if (!evidence.has_liveness && evidence.small_blocks != nullptr) see_small_blocks();
}

// One page is enough to tell of a stretch with one owner.
void HeapOwner::see_pages(const LivePages& pages) {
  auto vma = std::ranges::upper_bound(evidence_.vmas, pages.start, {}, &Vma::end);
  auto owned = std::ranges::upper_bound(evidence_.owned, pages.start, {}, &OwnedRange::end);
  for (std::uint64_t at = pages.start; at < pages.end();) {
    while (vma != evidence_.vmas.end() && vma->end <= at) ++vma;
    while (owned != evidence_.owned.end() && owned->end <= at) ++owned;
    if (vma == evidence_.vmas.end()) return;
    std::uint64_t stop = std::min(pages.end(), vma->start > at ? vma->start : vma->end);
    const bool in_owned = owned != evidence_.owned.end() && owned->start <= at;
    if (owned != evidence_.owned.end()) stop = std::min(stop, in_owned ? owned->end : owned->start);
    stop = std::max((stop + kLivePageBytes - 1) / kLivePageBytes * kLivePageBytes, at + kLivePageBytes);
    const auto first = pages.pages.begin() + static_cast<std::ptrdiff_t>((at - pages.start) / kLivePageBytes);
    const auto last =
        pages.pages.begin() + static_cast<std::ptrdiff_t>((std::min(stop, pages.end()) - pages.start) / kLivePageBytes);
    const bool program = in_owned && owned->owner == Owner::program;
    const bool found = std::any_of(
        first, last, [&](const PageLife& page) { return page.live_bytes > 0 || (!program && page.ever_held); });
    if (found && program)
      holds_blocks_[static_cast<std::size_t>(owned - evidence_.owned.begin())] = true;
    else if (found && vma->start <= at)
      held_blocks_[static_cast<std::size_t>(vma - evidence_.vmas.begin())] = true;
    at = stop;
  }
}

void HeapOwner::see_small_blocks() {
  evidence_.small_blocks->for_each([&](const LiveBlock& block) {
    if (const OwnedRange* owned = range_at(evidence_.owned, block.address))
      holds_blocks_[static_cast<std::size_t>(owned - evidence_.owned.data())] = true;
    else if (const Vma* vma = range_at(evidence_.vmas, block.address))
      held_blocks_[static_cast<std::size_t>(vma - evidence_.vmas.data())] = true;
  });
}

bool HeapOwner::owns(const Fragment& fragment) const {
  if (const OwnedRange* owned = fragment.owned) {
    // A program's own mapping, unless it holds blocks: then it belongs to an allocator that we do not know.
    return owned->owner != Owner::program || holds_blocks_[static_cast<std::size_t>(owned - evidence_.owned.data())];
  }
  if (fragment.vma->path == "[heap]" || fragment.held != nullptr) return true;
  // The allocator mapped it where no hook could see: around its blocks everything is its own.
  const bool nameless = fragment.vma->path.empty() || fragment.vma->path.starts_with("[anon");
  if (!nameless) return false;
  if (held_blocks_[fragment.vma_index]) return true;
  return in_glibc_arena(evidence_, fragment) && rules::image_of_bss(evidence_, fragment.vma_index) == nullptr;
}

}  // namespace whyrss
