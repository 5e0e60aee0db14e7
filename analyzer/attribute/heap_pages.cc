#include "attribute/heap_pages.h"

#include <algorithm>

namespace whyrss {
namespace {

// Of a recording that names its mappings to our harm, all others count as one nameless kind.
constexpr std::size_t kMostStrata = 64;

constexpr unsigned kHugeShift = 21;  // pages of 2 MiB

std::uint64_t page_start(std::uint64_t address) { return address - address % kLivePageBytes; }

// A block is cut out of what it lies in.
bool is_of_library(const std::vector<OwnedRange>& owned, const Fragment& fragment) {
  if (!fragment.owned_by(Owner::block)) return fragment.owned_by(Owner::library);
  const OwnedRange& block = *fragment.owned;
  const auto at = owned.begin() + (&block - owned.data());
  return (at != owned.begin() && std::prev(at)->owner == Owner::library && std::prev(at)->end == block.start) ||
         (std::next(at) != owned.end() && std::next(at)->owner == Owner::library && std::next(at)->start == block.end);
}

}  // namespace

HeapPages::HeapPages(const Evidence& evidence, const std::vector<Fragment>& fragments)
    : owned_(evidence.owned),
      live_pages_(evidence.live_pages),
      has_liveness_(evidence.has_liveness),
      knows_malloc_(evidence.has_liveness || (evidence.exact_blocks && evidence.small_blocks != nullptr)),
      samples_suffice_(evidence.small_blocks != nullptr),
      roots_(kRoots) {
  pages_.reserve(most_pages(fragments));
  for (const Fragment& fragment : fragments) add_fragment(fragment);
  const bool all_known = evidence.exact_blocks && evidence.small_blocks != nullptr;
  if (all_known && (!has_liveness_ || evidence.counts_underflowed)) count_blocks(*evidence.small_blocks);
  settle();
}

std::uint64_t HeapPages::most_pages(const std::vector<Fragment>& fragments) {
  std::uint64_t pages = 0;
  for (const Fragment& fragment : fragments)
    pages += fragment.owned_by(Owner::block) ? 2 : (fragment.end - fragment.start) / kLivePageBytes + 2;
  return pages;
}

void HeapPages::add_fragment(const Fragment& fragment) {
  const bool block = fragment.owned_by(Owner::block);
  strata_here_.fill(kNone);
  if (block && fragment.start == fragment.owned->start) explain_lead(fragment.start);
  if (block) hold(page_start(fragment.start), page_start(fragment.end - 1) + kLivePageBytes, fragment.huge);
  for (std::uint64_t at = fragment.start; at < fragment.end;) {
    if (block && at == page_start(at) && fragment.end - at >= kLivePageBytes) {
      at = page_start(fragment.end);  // nothing else is on the pages between
      continue;
    }
    const std::uint64_t end = std::min(fragment.end, page_start(at) + kLivePageBytes);
    const auto bytes = static_cast<std::uint16_t>(end - at);
    HeapPage& page = page_at(page_start(at), fragment);
    page.heap_bytes = static_cast<std::uint16_t>(page.heap_bytes + bytes);
    if (block) {
      page.large_bytes = static_cast<std::uint16_t>(page.large_bytes + bytes);
      large_parts_.push_back({static_cast<std::uint32_t>(pages_.size() - 1), fragment.owned->stack, bytes});
    }
    at = end;
  }
}

// Pages come by address. Where an allocator has no page for its headers alone, as glibc, they lie right before or
// behind blocks.
void HeapPages::hold(std::uint64_t start, std::uint64_t end, bool huge) {
  if (!pages_.empty() && pages_.back().start + kLivePageBytes == start)
    pages_.back().blockless = BlocklessPage::metadata;
  held_end_ = std::max(held_end_, end);
  if (!huge) return;
  for (std::uint64_t at = start >> kHugeShift; at <= (end - 1) >> kHugeShift; ++at)
    if (huge_in_use_.empty() || huge_in_use_.back() < at) huge_in_use_.push_back(at);
}

// The header of what is free at the end of an arena may lie there, behind pages of it that were never used.
bool HeapPages::ends_alone(std::uint64_t start, const Vma& vma) const {
  return start + kLivePageBytes == vma.end && (pages_.empty() || pages_.back().start + kLivePageBytes != start);
}

// glibc maps a large block of a large alignment with room before it: a header begins the mapping, a second one the
// block, and nothing is between.
void HeapPages::explain_lead(std::uint64_t block) {
  if (pages_.size() < 2 || pages_.back().start + kLivePageBytes != block) return;
  HeapPage& lead = pages_[pages_.size() - 2];
  const std::uint64_t alignment = block & (~block + 1);
  if (lead.start + kLivePageBytes < pages_.back().start && block - lead.start <= alignment)
    lead.blockless = BlocklessPage::metadata;
}

// Fragments come by address: the page is the last one, or a new one.
HeapPage& HeapPages::page_at(std::uint64_t start, const Fragment& fragment) {
  if (!pages_.empty() && pages_.back().start == start) return pages_.back();
  const PageLife life = life_of(start);
  const bool pymalloc = life.pymalloc || fragment.owned_by(Owner::pymalloc);
  knows_pymalloc_ |= life.pymalloc;
  std::uint32_t& stratum = strata_here_[pymalloc ? 1 : 0];
  const bool library = is_of_library(owned_, fragment);
  if (stratum == kNone) stratum = stratum_of({fragment.vma->path, fragment.exclusive, pymalloc, library});
  HeapPage page{.start = start,
                .stratum = stratum,
                .small_bytes = life.live_bytes,
                .ever_held = life.ever_held || pymalloc || fragment.held != nullptr};
  if (page.ever_held)
    hold(start, start + kLivePageBytes, fragment.huge);
  else if (fragment.owned == nullptr && held_end_ != start && !ends_alone(start, *fragment.vma))
    page.blockless = fragment.huge ? BlocklessPage::huge_page : BlocklessPage::unexplained;
  const bool mapped_seen = fragment.owned_by(Owner::pymalloc) || fragment.owned_by(Owner::program) || library;
  if (mapped_seen) page.mapped_stack = fragment.owned->stack;
  if (fragment.held != nullptr && !life.ever_held) page.held_stack = fragment.held->last_stack;
  add_place(start, static_cast<std::uint32_t>(pages_.size()));
  return pages_.emplace_back(page);
}

PageLife HeapPages::life_of(std::uint64_t start) {
  while (next_live_ < live_pages_.size() && live_pages_[next_live_].end() <= start) ++next_live_;
  if (next_live_ == live_pages_.size() || live_pages_[next_live_].start > start) return {};
  return live_pages_[next_live_].pages[(start - live_pages_[next_live_].start) / kLivePageBytes];
}

std::uint32_t HeapPages::stratum_of(const HeapStratum& stratum) {
  const auto found = std::find(strata_.begin(), strata_.end(), stratum);
  if (found != strata_.end()) return static_cast<std::uint32_t>(found - strata_.begin());
  if (strata_.size() >= kMostStrata && !stratum.mapping.empty())
    return stratum_of({{}, stratum.exclusive, stratum.pymalloc, stratum.library});
  strata_.push_back(stratum);
  return static_cast<std::uint32_t>(strata_.size() - 1);
}

void HeapPages::add_place(std::uint64_t address, std::uint32_t index) {
  const std::uint64_t page = address >> kPageShift, stretch = page >> kTableBits, gigabyte = stretch >> kTableBits;
  const std::uint64_t root = gigabyte >> kTableBits;
  if (root >= kRoots) return;  // the kernel's
  const auto table_of = [](std::uint32_t& table, Level& below, std::uint32_t empty) {
    if (table != 0) return table;
    table = static_cast<std::uint32_t>(below.size() / kTableEntries) + 1;
    below.resize(below.size() + kTableEntries, empty);
    return table;
  };
  const std::uint32_t gigabytes = table_of(roots_[root], gigabytes_, 0);
  const std::uint32_t stretches = table_of(gigabytes_[place_in(gigabytes, gigabyte)], stretches_, 0);
  index_[place_in(table_of(stretches_[place_in(stretches, stretch)], index_, kNone), page)] = index;
}

// Blocks that are known to be live are a lower bound of the table's value, which may have counted releases alone.
void HeapPages::count_blocks(const LiveSet& blocks) {
  std::vector<std::int64_t> counted(pages_.size());
  blocks.for_each([&](const LiveBlock& block) {
    visit_pages(block.address, block.size_bytes, [&](std::uint64_t at, std::int64_t bytes) {
      const std::size_t place = place_of(at);
      if (place == kNowhere || index_[place] == kNone) return;
      if (strata_[pages_[index_[place]].stratum].pymalloc && knows_pymalloc_) return;
      counted[index_[place]] += bytes;
    });
  });
  for (std::size_t i = 0; i < pages_.size(); ++i)
    pages_[i].small_bytes = static_cast<std::uint16_t>(std::clamp<std::int64_t>(
        counted[i], pages_[i].small_bytes, std::max<std::int64_t>(kLivePageBytes, pages_[i].small_bytes)));
}

void HeapPages::settle() {
  spots_.resize(index_.size());
  for (HeapPage& page : pages_) {
    const HeapStratum& stratum = strata_[page.stratum];
    const auto room = static_cast<std::uint16_t>(page.heap_bytes - page.large_bytes);
    if (knows(stratum))
      page.small_bytes = std::min(page.small_bytes, room);
    else
      page.small_bytes = stratum.pymalloc || !samples_suffice_ ? room : 0;
    // Without a table nothing tells a page that was freed from one that never was in use.
    page.ever_held |= !has_liveness_ && !stratum.library;
    if (page.blockless == BlocklessPage::huge_page &&
        !std::ranges::binary_search(huge_in_use_, page.start >> kHugeShift))
      page.blockless = BlocklessPage::unexplained;
    if (const std::size_t place = place_of(page.start); place != kNowhere)
      spots_[place] = {page.stratum, static_cast<float>(page.pinned_by(1))};
  }
}

}  // namespace whyrss
