#include "collect/liveness_read.h"

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

constexpr std::uint64_t kCountersPerTablePage = kLivenessPageBytes / sizeof(std::uint32_t);
constexpr std::uint64_t kSpanOfTablePage = kCountersPerTablePage * kLivenessPageBytes;
constexpr std::uint64_t kDirectoryBytes = trace::kDirectoryEntries * sizeof(std::uint64_t);
constexpr std::uint64_t kMostPageBytes = 512 * trace::kLivenessUnitBytes;

struct Span {
  std::uint64_t start, end;
};

bool may_hold_heap(const trace::WalkVma& vma) {
  return vma.backing == trace::Backing::anonymous && (vma.perms & trace::VmaPerms::shared) == 0;
}

// Private pages without a file that are there, sorted, neighbours joined.
std::vector<Span> resident_anonymous(const PageWalk& walk) {
  std::vector<Span> spans;
  for (const WalkedVma& vma : walk.vmas) {
    if (!may_hold_heap(vma.vma)) continue;
    std::uint64_t at = vma.vma.start;
    for (const trace::WalkRun& run : vma.runs) {
      const std::uint64_t end = at + run.page_count * kLivenessPageBytes;
      if (is_counted(run.bits) && (run.bits & PageBits::file) == 0) {
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

// The counters of all pages of the table that are there: by the first address that they tell of, kSpanOfTablePage each.
using Counters = std::map<std::uint64_t, std::vector<std::uint32_t>>;

class TableReader {
 public:
  TableReader(const TargetMemory& memory, const std::vector<Span>& present) : memory_(memory), present_(present) {}

  Counters read(std::uint64_t directory) {
    visit_present(present_, directory, directory + kDirectoryBytes, [&](std::uint64_t start, std::uint64_t end) {
      std::vector<std::uint64_t> leaves((end - start) / sizeof(std::uint64_t));
      if (!memory_.read(start, std::as_writable_bytes(std::span(leaves)))) return;
      for (std::size_t i = 0; i < leaves.size(); ++i)
        if (leaves[i] != 0 && leaves[i] % kLivenessPageBytes == 0)
          read_leaf(leaves[i], ((start - directory) / sizeof(std::uint64_t) + i) * trace::kLeafSpan);
    });
    return std::move(counters_);
  }

 private:
  void read_leaf(std::uint64_t leaf, std::uint64_t first_address) {
    visit_present(present_, leaf, leaf + trace::kLeafBytes, [&](std::uint64_t start, std::uint64_t end) {
      for (std::uint64_t page = start; page < end; page += kLivenessPageBytes) {
        std::vector<std::uint32_t> counters(kCountersPerTablePage);
        if (!memory_.read(page, std::as_writable_bytes(std::span(counters)))) continue;
        counters_[first_address + (page - leaf) / kLivenessPageBytes * kSpanOfTablePage] = std::move(counters);
      }
    });
  }

  const TargetMemory& memory_;
  const std::vector<Span>& present_;
  Counters counters_;
};

// A page of blocks has this value only when all of them are gone: below 0 borrows from the high half.
bool is_pymalloc(std::uint32_t counter) { return counter == trace::kPymallocPage << 16; }

std::int64_t live_bytes(std::uint32_t counter) {
  return static_cast<std::int16_t>(counter & 0xffff) * static_cast<std::int64_t>(trace::kLivenessUnitBytes);
}

std::uint16_t word_of(std::uint32_t counter) {
  if (is_pymalloc(counter)) return PageLiveness::pymalloc;
  const auto live = static_cast<std::uint64_t>(
      std::clamp<std::int64_t>(live_bytes(counter), 0, static_cast<std::int64_t>(kMostPageBytes)));
  return static_cast<std::uint16_t>(PageLiveness::ever_held | live / trace::kLivenessUnitBytes);
}

void sum_up(const Counters& counters, trace::LivenessHeader& header) {
  for (const auto& [first, page] : counters) {
    for (const std::uint32_t counter : page) {
      if (counter == 0 || is_pymalloc(counter)) continue;
      const std::int64_t live = live_bytes(counter);
      if (live < 0)
        ++header.underflowed_pages;
      else
        header.table_live_bytes += static_cast<std::uint64_t>(live);
    }
  }
}

void add_page(std::vector<LivenessPages>& ranges, std::uint64_t address, std::uint16_t word) {
  if (ranges.empty() || ranges.back().start + ranges.back().pages.size() * kLivenessPageBytes != address)
    ranges.push_back({.start = address, .pages = {}});
  ranges.back().pages.push_back(word);
}

}  // namespace

Liveness read_liveness(const TargetMemory& memory, std::uint64_t table_address, const PageWalk& walk) {
  Liveness liveness;
  liveness.header.walk_end_ns = walk.header.end_ns;
  const auto table = memory.read<trace::LivenessTable>(table_address);
  if (!table || table->magic != trace::kLivenessMagic) {
    liveness.header.flags = table ? LivenessFlags::no_table : LivenessFlags::not_readable;
    return liveness;
  }
  const std::vector<Span> resident = resident_anonymous(walk);
  const Counters counters = TableReader(memory, resident).read(table->directory);
  sum_up(counters, liveness.header);

  std::vector<std::uint64_t> in_arenas;
  for (const auto& entry : counters) {
    const std::uint64_t first = entry.first;
    const std::vector<std::uint32_t>& page = entry.second;
    visit_present(resident, first, first + kSpanOfTablePage, [&](std::uint64_t start, std::uint64_t end) {
      for (std::uint64_t address = start; address < end; address += kLivenessPageBytes) {
        const std::uint32_t counter = page[(address - first) / kLivenessPageBytes];
        if (counter == 0) continue;
        add_page(liveness.ranges, address, word_of(counter));
        if (is_pymalloc(counter)) in_arenas.push_back(address);
      }
    });
  }
  const bool has_pools = table->pymalloc_pool_bytes == 4096 || table->pymalloc_pool_bytes == 16384;
  if (!has_pools || in_arenas.empty()) return liveness;
  liveness.pool_bytes = table->pymalloc_pool_bytes;
  std::vector<std::uint16_t*> words;
  words.reserve(in_arenas.size());
  for (LivenessPages& range : liveness.ranges)
    for (std::uint16_t& word : range.pages)
      if ((word & PageLiveness::pymalloc) != 0) words.push_back(&word);
  PoolsRead pools = read_pools(memory, table->pymalloc_pool_bytes, in_arenas, words);
  liveness.header.pymalloc_live_bytes = pools.live_bytes;
  liveness.pools = std::move(pools.used);
  return liveness;
}

}  // namespace whyrss
