// The resident pages of the heap, and what is live on each: from the liveness table, from CPython's pool headers, from
// the blocks that are known by their address; never from samples. Pages that one live block fills are not listed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/ledger.h"

namespace whyrss {

// Heap pages of one kind: the samples of its blocks stand for the others.
struct HeapStratum {
  std::string_view mapping;
  bool exclusive = false;
  bool pymalloc = false;
  bool library = false;  // of an allocator inside a library: blocks of AddressSpace alone are known
  friend bool operator==(const HeapStratum&, const HeapStratum&) = default;
};

// What explains a page of the heap on which no block is known to have been.
enum class BlocklessPage : std::uint8_t {
  metadata,     // the allocator mapped it, or its neighbour held blocks: headers of what lies around these
  huge_page,    // resident because blocks lie beside it in the same 2 MiB: free, and never handed out
  unexplained,  // no call that we saw: blocks that were made past our hooks, or memory mapped so
};

struct HeapPage {
  std::uint64_t start = 0;
  std::uint32_t stratum = 0;
  StackId mapped_stack = kEmptyStack;                 // who mapped it, where that is known
  StackId held_stack = kEmptyStack;                   // who held it last, where that was a block of AddressSpace
  std::uint16_t heap_bytes = 0;                       // all of the page, but where the program's own break begins on it
  std::uint16_t large_bytes = 0;                      // of them in live blocks of AddressSpace
  std::uint16_t small_bytes = 0;                      // of them in live blocks of the LiveSet's kind; 0 where not known
  bool ever_held = false;                             // a block was, or is, on it
  BlocklessPage blockless = BlocklessPage::metadata;  // where none was

  [[nodiscard]] std::int64_t live_bytes() const { return std::int64_t{large_bytes} + small_bytes; }
  [[nodiscard]] std::int64_t free_bytes() const { return heap_bytes - live_bytes(); }
  // The part of the free bytes that `bytes` of the live ones keep from being given back.
  [[nodiscard]] double pinned_by(std::int64_t bytes) const {
    if (live_bytes() == 0) return 0;  // the block came or went during the walk
    return static_cast<double>(bytes) / static_cast<double>(live_bytes()) * static_cast<double>(free_bytes());
  }
};

// Of a page without a live block: whether a block may be on it that was not recorded.
inline bool is_unsplit(const Evidence& evidence, const HeapPage& page, const HeapStratum& stratum) {
  return stratum.library && !page.ever_held && !evidence.exact_blocks;
}

// What lies on a listed page of a block of AddressSpace.
struct LargePart {
  std::uint32_t page = 0;
  StackId stack = kEmptyStack;
  std::uint16_t bytes = 0;
};

class HeapPages {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // What a block must know of a page that it lies on.
  struct Spot {
    std::uint32_t stratum = kNone;  // kNone: no page of the heap, or one that a block fills
    float pinned_per_byte = 0;      // free bytes of the page by live byte
  };

  // `fragments`: all of the heap, sorted. `evidence` must outlive it.
  HeapPages(const Evidence& evidence, const std::vector<Fragment>& fragments);

  // At most so many pages are listed for these fragments.
  [[nodiscard]] static std::uint64_t most_pages(const std::vector<Fragment>& fragments);

  // Of the page that holds `address`. O(1).
  [[nodiscard]] Spot spot(std::uint64_t address) const {
    const std::size_t place = place_of(address);
    return place == kNowhere ? Spot{} : spots_[place];
  }

  // nullptr: as kNone above.
  [[nodiscard]] const HeapPage* page(std::uint64_t address) const {
    const std::size_t place = place_of(address);
    return place == kNowhere || index_[place] == kNone ? nullptr : &pages_[index_[place]];
  }

  [[nodiscard]] const std::vector<HeapPage>& pages() const { return pages_; }
  [[nodiscard]] const std::vector<HeapStratum>& strata() const { return strata_; }
  [[nodiscard]] const std::vector<LargePart>& large_parts() const { return large_parts_; }
  [[nodiscard]] std::span<const LargePart> large_parts_on(const HeapPage& page) const {
    const auto number = static_cast<std::uint32_t>(&page - pages_.data());
    const auto first = std::ranges::lower_bound(large_parts_, number, {}, &LargePart::page);
    const auto last = std::ranges::upper_bound(large_parts_, number, {}, &LargePart::page);
    return {first, last};
  }

  // Whether it is known what is live on the pages of this kind. Where nothing tells of pymalloc's pools, or of small
  // blocks at all, the pages count as full.
  [[nodiscard]] bool knows(const HeapStratum& stratum) const {
    return stratum.library || (stratum.pymalloc ? knows_pymalloc_ : knows_malloc_);
  }

 private:
  void add_fragment(const Fragment& fragment);
  HeapPage& page_at(std::uint64_t start, const Fragment& fragment);
  PageLife life_of(std::uint64_t start);
  std::uint32_t stratum_of(const HeapStratum& stratum);
  [[nodiscard]] bool ends_alone(std::uint64_t start, const Vma& vma) const;
  void explain_lead(std::uint64_t block);
  void hold(std::uint64_t start, std::uint64_t end, bool huge);
  void count_blocks(const LiveSet& blocks);
  void settle();

  const std::vector<OwnedRange>& owned_;
  const std::vector<LivePages>& live_pages_;
  bool has_liveness_, knows_malloc_, knows_pymalloc_ = false, samples_suffice_;
  std::size_t next_live_ = 0;  // pages come by address
  std::vector<HeapPage> pages_;
  std::vector<HeapStratum> strata_;
  std::vector<LargePart> large_parts_;
  std::uint64_t held_end_ = 0;                  // of the last pages that hold or held a block
  std::vector<std::uint64_t> huge_in_use_;      // those of 2 MiB with such pages, by number; sorted
  std::array<std::uint32_t, 2> strata_here_{};  // of the fragment that is being added: without and with pymalloc

  // Pages by address: the first level has a place per 512 GiB, the second one per GiB, the third one per 2 MiB; they
  // hold 1 + the number of a table of 512 entries below, or 0. A page's entry has one place in index_, of pages_, and
  // in spots_.
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  static constexpr unsigned kPageShift = 12, kTableBits = 9;
  static constexpr std::uint64_t kTableEntries = std::uint64_t{1} << kTableBits;
  static constexpr std::uint64_t kRoots = std::uint64_t{1} << 8;  // 47 bits of user space
  using Level = std::vector<std::uint32_t>;
  // Of the entry for `index` in the table of that number, counted from 1.
  static std::size_t place_in(std::uint32_t table, std::uint64_t index) {
    return ((std::size_t{table} - 1) << kTableBits) + index % kTableEntries;
  }
  [[nodiscard]] std::size_t place_of(std::uint64_t address) const {
    const std::uint64_t page = address >> kPageShift, stretch = page >> kTableBits, gigabyte = stretch >> kTableBits;
    const std::uint64_t root = gigabyte >> kTableBits;
    if (root >= kRoots || roots_[root] == 0) return kNowhere;
    const std::uint32_t gigabytes = gigabytes_[place_in(roots_[root], gigabyte)];
    if (gigabytes == 0) return kNowhere;
    const std::uint32_t stretches = stretches_[place_in(gigabytes, stretch)];
    return stretches == 0 ? kNowhere : place_in(stretches, page);
  }
  void add_place(std::uint64_t address, std::uint32_t index);
  Level roots_, gigabytes_, stretches_, index_;
  std::vector<Spot> spots_;
};

// Larger ones are AddressSpace's.
inline constexpr std::uint64_t kMostSampledBlockBytes = 128 * 1024;

// Calls visit(address, bytes there) for each page that a block of the LiveSet lies on.
template <typename Visit>
void visit_pages(std::uint64_t address, std::uint64_t size_bytes, Visit visit) {
  for (std::uint64_t at = address, left = std::min(size_bytes, kMostSampledBlockBytes); left > 0;) {
    const std::uint64_t bytes = std::min(left, kLivePageBytes - at % kLivePageBytes);
    visit(at, static_cast<std::int64_t>(bytes));
    at += bytes;
    left -= bytes;
  }
}

}  // namespace whyrss
