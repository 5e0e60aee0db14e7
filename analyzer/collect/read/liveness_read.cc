#include "collect/read/liveness_read.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "shim/trace/liveness_format.h"

namespace whyrss {
namespace {

using trace::kLivenessPageBytes;
using trace::LivenessFlags;
using trace::PageBits;
using trace::PageLiveness;

constexpr std::uint64_t kDirectoryBytes = trace::kDirectoryEntries * sizeof(std::uint64_t);

struct Span {
  std::uint64_t start, end;
};

bool may_hold_heap(const trace::WalkVma& vma) {
  return vma.backing == trace::Backing::anonymous && (vma.perms & trace::VmaPerms::shared) == 0;
}

bool is_resident_anonymous(std::uint32_t bits) { return is_counted(bits) && (bits & PageBits::file) == 0; }
bool is_swapped(std::uint32_t bits) { return (bits & PageBits::swapped) != 0; }

// Private pages like that, sorted, neighbours joined.
std::vector<Span> spans_of(const PageWalk& walk, bool (*is_wanted)(std::uint32_t bits)) {
  std::vector<Span> spans;
  for (const WalkedVma& vma : walk.vmas) {
    if (!may_hold_heap(vma.vma)) continue;
    std::uint64_t at = vma.vma.start;
    for (const trace::WalkRun& run : vma.runs) {
      const std::uint64_t end = at + run.page_count * kLivenessPageBytes;
      if (is_wanted(run.bits)) {
        if (!spans.empty() && spans.back().end == at)
          spans.back().end = end;
        else
          spans.push_back({at, end});
      }
      at = end;
    }
  }
  return spans;
}

// Calls visit(start, end) for the parts of [start, end) that are there.
template <typename Visit>
void visit_present(const std::vector<Span>& present, std::uint64_t start, std::uint64_t end, Visit visit) {
  auto at = std::ranges::upper_bound(present, start, {}, &Span::end);
  for (; at != present.end() && at->start < end; ++at) visit(std::max(at->start, start), std::min(at->end, end));
}

bool has_page(const std::vector<Span>& spans, std::uint64_t address) {
  const auto at = std::ranges::upper_bound(spans, address, {}, &Span::end);
  return at != spans.end() && at->start <= address;
}

// A page of blocks has this value only when all of them are gone: below 0 borrows from the high half.
bool is_pymalloc(std::uint32_t counter) { return counter == trace::kPymallocPage << 16; }

std::int32_t live_units(std::uint32_t counter) { return static_cast<std::int16_t>(counter & 0xffff); }

bool is_below_zero(std::uint32_t counter) { return live_units(counter) < 0; }

// Counters of the table that lie together and are there, and the first address that they tell of.
struct Counters {
  std::uint64_t first;
  std::vector<std::uint32_t> values;
  [[nodiscard]] std::uint64_t end() const { return first + values.size() * kLivenessPageBytes; }
};

class TableReader {
 public:
  TableReader(const TargetMemory& memory, const std::vector<Span>& present, const std::vector<Span>& swapped)
      : memory_(memory), present_(present), swapped_(swapped) {}

  // Sums of all directories and what block starts tell of, in address order.
  std::vector<Counters> read(const trace::LivenessTable& table) {
    std::map<std::uint64_t, std::vector<std::uint64_t>> leaves;  // of the same addresses, by the first one
    find_leaves(table.directory, leaves);
    for (const std::uint64_t directory : table.thread_directories)
      if (directory != 0) find_leaves(directory, leaves);
    for (const auto& [first_address, of_directories] : leaves) sum_leaves(of_directories, first_address);
    leaves.clear();
    if (table.block_starts != 0) find_leaves(table.block_starts, leaves);
    for (const auto& [first_address, leaf] : leaves) add_blocks(leaf.front(), first_address);
    for (const std::uint64_t first : unknown_) stretches_.erase(first);
    return joined();
  }

 private:
  void find_leaves(std::uint64_t directory, std::map<std::uint64_t, std::vector<std::uint64_t>>& leaves) {
    visit_present(present_, directory, directory + kDirectoryBytes, [&](std::uint64_t start, std::uint64_t end) {
      std::vector<std::uint64_t> entries((end - start) / sizeof(std::uint64_t));
      if (!memory_.read(start, std::as_writable_bytes(std::span(entries)))) return;
      for (std::size_t i = 0; i < entries.size(); ++i)
        if (entries[i] != 0 && entries[i] % kLivenessPageBytes == 0)
          leaves[((start - directory) / sizeof(std::uint64_t) + i) * trace::kLeafSpan].push_back(entries[i]);
    });
  }

  static constexpr std::uint32_t kOneAllocation = std::uint32_t{1} << 16;
  using Stretch = std::vector<std::uint32_t>;  // counters
  static constexpr std::size_t kCountersPerPage = kLivenessPageBytes / sizeof(std::uint32_t);
  static constexpr std::uint64_t kStretchBytes =
      kCountersPerPage * kLivenessPageBytes;  // that a page of them describes

  // A page of counters, over all leaves.
  struct Sum {
    std::vector<std::uint32_t> values;
    std::size_t added = 0;  // leaves
  };

  void leave_out_swapped(std::uint64_t leaf, std::uint64_t first_address) {
    visit_present(swapped_, leaf, leaf + trace::kLeafBytes, [&](std::uint64_t start, std::uint64_t end) {
      for (std::uint64_t page = start; page < end; page += kLivenessPageBytes)
        unknown_.push_back(first_described(page - leaf, first_address));
    });
  }

  // The first address that the page of counters at `offset` of a leaf describes.
  static std::uint64_t first_described(std::uint64_t offset, std::uint64_t first_address) {
    return first_address + offset / sizeof(std::uint32_t) * kLivenessPageBytes;
  }

  // A part of a sum says nothing: where a leaf has its page in swap, or it went away meanwhile, nothing is known.
  void sum_leaves(const std::vector<std::uint64_t>& leaves, std::uint64_t first_address) {
    std::map<std::uint64_t, Sum> sums;  // by the place of the page in the leaf
    for (const std::uint64_t leaf : leaves) {
      leave_out_swapped(leaf, first_address);
      visit_present(present_, leaf, leaf + trace::kLeafBytes,
                    [&](std::uint64_t start, std::uint64_t end) { add_part(leaf, start, end, sums); });
    }
    for (auto& place : sums) {
      const std::uint64_t offset = place.first;
      Sum& sum = place.second;
      const auto expected = static_cast<std::size_t>(
          std::ranges::count_if(leaves, [&](std::uint64_t leaf) { return has_page(present_, leaf + offset); }));
      const std::uint64_t first = first_described(offset, first_address);
      // What one thread allocates while the leaves are read, and another one releases, may be missing.
      constexpr int kReadings = 3;
      for (int i = 1; i < kReadings && std::ranges::any_of(sum.values, is_below_zero); ++i) {
        std::map<std::uint64_t, Sum> again;
        for (const std::uint64_t leaf : leaves)
          if (has_page(present_, leaf + offset))
            add_part(leaf, leaf + offset, leaf + offset + kLivenessPageBytes, again);
        sum = std::move(again[offset]);
      }
      if (sum.added == expected)
        stretches_[first] = std::move(sum.values);
      else
        unknown_.push_back(first);
    }
  }

  // Of a leaf of block starts.
  void add_blocks(std::uint64_t leaf, std::uint64_t first_address) {
    std::map<std::uint64_t, Sum> words;
    leave_out_swapped(leaf, first_address);
    visit_present(present_, leaf, leaf + trace::kLeafBytes,
                  [&](std::uint64_t start, std::uint64_t end) { add_part(leaf, start, end, words); });
    for (const auto& [offset, page] : words)
      for (std::size_t i = 0; i < page.values.size(); ++i)
        add_block(first_described(offset, first_address) + i * kLivenessPageBytes, page.values[i]);
    add_held();
  }

  // Of the word of a page, in rising order of pages.
  void add_block(std::uint64_t page, std::uint32_t word) {
    if (word == 0) return;
    if (page > held_.end) add_held();
    held_.end = std::max(held_.end, page + trace::block_start::held_pages(word) * kLivenessPageBytes);
    if (held_.start == 0) held_.start = page;
    std::uint64_t at = page + trace::block_start::offset_bytes(word);
    for (const std::uint64_t end = at + trace::block_start::live_bytes(word); at < end;) {
      const std::uint64_t next = std::min(end, (at / kLivenessPageBytes + 1) * kLivenessPageBytes);
      add_to(at, static_cast<std::uint32_t>((next - at) / trace::kLivenessUnitBytes));
      at = next;
    }
  }

  // Once for each page, however many blocks were on it: where all of a heap was in use, each page says up to 33.
  void add_held() {
    for (std::uint64_t page = held_.start; page < held_.end; page += kLivenessPageBytes) add_to(page, kOneAllocation);
    held_ = {};
  }

  // A page that held such a block may be CPython's by now.
  void add_to(std::uint64_t address, std::uint32_t counts) {
    std::uint32_t& counter = stretch_of(address)[address % kStretchBytes / kLivenessPageBytes];
    if (!is_pymalloc(counter)) counter += counts;
  }

  Stretch& stretch_of(std::uint64_t address) {
    const std::uint64_t first = address - address % kStretchBytes;
    if (last_stretch_ == nullptr || last_first_ != first) {
      const auto [found, is_new] = stretches_.try_emplace(first);
      if (is_new) found->second.resize(kCountersPerPage);
      last_first_ = first;
      last_stretch_ = &found->second;
    }
    return *last_stretch_;
  }

  std::vector<Counters> joined() {
    std::vector<Counters> counters;
    for (const auto& [first, stretch] : stretches_) {
      if (counters.empty() || counters.back().end() != first) counters.push_back({.first = first, .values = {}});
      std::vector<std::uint32_t>& values = counters.back().values;
      values.insert(values.end(), stretch.begin(), stretch.end());
    }
    return counters;
  }

  // Adds the pages [start, end) of the leaf, without those that went away meanwhile.
  void add_part(std::uint64_t leaf, std::uint64_t start, std::uint64_t end, std::map<std::uint64_t, Sum>& sums) {
    std::vector<std::uint32_t> values((end - start) / sizeof(std::uint32_t));
    if (!memory_.read(start, std::as_writable_bytes(std::span(values)))) {
      if (end - start > kLivenessPageBytes)
        for (std::uint64_t page = start; page < end; page += kLivenessPageBytes)
          add_part(leaf, page, page + kLivenessPageBytes, sums);
      return;
    }
    for (std::size_t at = 0; at < values.size(); at += kCountersPerPage) {
      Sum& sum = sums[start - leaf + at * sizeof(std::uint32_t)];
      sum.values.resize(kCountersPerPage);
      for (std::size_t i = 0; i < kCountersPerPage; ++i) sum.values[i] += values[at + i];
      ++sum.added;
    }
  }

  const TargetMemory& memory_;
  const std::vector<Span>& present_;
  const std::vector<Span>& swapped_;
  std::map<std::uint64_t, Stretch> stretches_;  // by the first address
  std::uint64_t last_first_ = 0;                // of stretch_of
  Stretch* last_stretch_ = nullptr;
  std::vector<std::uint64_t> unknown_;  // the first addresses of stretches
  Span held_{};                         // pages that hold or held blocks, as far as words were read
};

std::uint16_t word_of(std::uint32_t counter) {
  const auto live = static_cast<std::uint16_t>(
      std::clamp(live_units(counter), 0, static_cast<std::int32_t>(trace::kLivenessPageUnits)));
  return is_pymalloc(counter) ? PageLiveness::pymalloc : static_cast<std::uint16_t>(PageLiveness::ever_held | live);
}

void sum_up(const std::vector<std::uint32_t>& counters, trace::LivenessHeader& header) {
  std::int64_t units = 0;
  for (const std::uint32_t counter : counters) {  // of pymalloc's pages these are 0
    units += std::max(live_units(counter), 0);
    header.underflowed_pages += is_below_zero(counter) ? 1 : 0;
  }
  header.table_live_bytes += static_cast<std::uint64_t>(units) * trace::kLivenessUnitBytes;
}

// What `counters` tell of [start, end), which is resident.
void add_pages(const Counters& counters, std::uint64_t start, std::uint64_t end, std::vector<LivenessPages>& ranges) {
  const auto at = [&](std::uint64_t address) {
    return counters.values.begin() + static_cast<std::ptrdiff_t>((address - counters.first) / kLivenessPageBytes);
  };
  const auto is_held = [](std::uint32_t counter) { return counter != 0; };
  const auto last = at(end);
  for (auto first = at(start); first != last;) {
    first = std::find_if(first, last, is_held);
    const auto behind = std::find_if_not(first, last, is_held);
    if (first == behind) break;
    const auto count = static_cast<std::size_t>(behind - first);
    const std::uint64_t address =
        counters.first + static_cast<std::uint64_t>(first - counters.values.begin()) * kLivenessPageBytes;
    if (ranges.empty() || ranges.back().start + ranges.back().pages.size() * kLivenessPageBytes != address)
      ranges.push_back({.start = address, .pages = {}});
    std::vector<std::uint16_t>& pages = ranges.back().pages;
    pages.resize(pages.size() + count);
    std::transform(first, behind, pages.end() - static_cast<std::ptrdiff_t>(count), word_of);
    first = behind;
  }
}

// Where the pages lie that are part of CPython's arenas, and their words.
struct ArenaPages {
  std::vector<std::uint64_t> addresses;
  std::vector<std::uint16_t*> words;
};

ArenaPages find_arena_pages(std::vector<LivenessPages>& ranges) {
  ArenaPages found;
  for (LivenessPages& range : ranges)
    for (std::size_t i = 0; i < range.pages.size(); ++i) {
      if ((range.pages[i] & PageLiveness::pymalloc) == 0) continue;
      found.addresses.push_back(range.start + i * kLivenessPageBytes);
      found.words.push_back(&range.pages[i]);
    }
  return found;
}

Liveness nothing_of(const PageWalk& walk, std::uint32_t flags) {
  Liveness liveness;
  liveness.header.walk_end_ns = walk.header.end_ns;
  liveness.header.flags = flags;
  return liveness;
}

}  // namespace

Liveness read_liveness(const TargetMemory& memory, std::uint64_t table_address, const PageWalk& walk,
                       PoolReader& pool_reader, PoolReader::Extent extent) {
  const auto table = memory.read<trace::LivenessTable>(table_address);
  if (!table) return nothing_of(walk, LivenessFlags::not_readable);
  if (table->magic != trace::kLivenessMagic) return nothing_of(walk, LivenessFlags::no_table);
  Liveness liveness = nothing_of(walk, 0);
  const std::vector<Span> resident = spans_of(walk, is_resident_anonymous);
  for (const Counters& counters : TableReader(memory, resident, spans_of(walk, is_swapped)).read(*table)) {
    sum_up(counters.values, liveness.header);
    visit_present(resident, counters.first, counters.end(),
                  [&](std::uint64_t start, std::uint64_t end) { add_pages(counters, start, end, liveness.ranges); });
  }
  const bool has_pools = table->pymalloc_pool_bytes == 4096 || table->pymalloc_pool_bytes == 16384;
  const ArenaPages arenas = has_pools ? find_arena_pages(liveness.ranges) : ArenaPages{};
  if (!arenas.addresses.empty()) {
    liveness.pool_bytes = table->pymalloc_pool_bytes;
    PoolsRead pools = pool_reader.read(memory, liveness.pool_bytes, arenas.addresses, arenas.words, extent);
    liveness.header.pymalloc_live_bytes = pools.live_bytes;
    liveness.pools = std::move(pools.used);
  }
  // Of a process that was killed meanwhile an unknown part was read.
  if (!memory.read<trace::LivenessTable>(table_address)) return nothing_of(walk, LivenessFlags::not_readable);
  return liveness;
}

}  // namespace whyrss
