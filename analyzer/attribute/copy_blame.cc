#include "attribute/copy_blame.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "attribute/block_data.h"
#include "attribute/range_cursor.h"
#include "attribute/small_block_sites.h"

namespace whyrss {
namespace {

// What a part of the copied memory was.
struct Made {
  StackId at = kEmptyStack;
  bool in_large_block = false;
  friend auto operator<=>(const Made&, const Made&) = default;
};

struct Written {
  std::int64_t bytes = 0;
  double variance = 0;
};

// Asked at growing addresses.
class AllocationSites {
 public:
  AllocationSites(const std::vector<Range>& copied, const std::vector<OwnedRange>& owned)
      : copied_(copied), owners_(owned) {}

  // Who made what lies there, and up to where.
  std::pair<Made, std::uint64_t> at(std::uint64_t address) {
    const OwnedRange* owner = owners_.at(address);
    const std::uint64_t end = owners_.boundary(address);
    if (owner == nullptr || owner->owner == Owner::allocator) return {{}, end};
    if (owner != last_owner_) data_ = written_data(*owner, copied_, [](const Range&) { return true; });
    last_owner_ = owner;
    if (address < data_.start) return {{owner->stack, false}, std::min(end, data_.start)};
    if (address < data_.end) return {{owner->stack, true}, std::min(end, data_.end)};
    return {{owner->stack, false}, end};
  }

  // Who made most of what lies in [start, end).
  Made most_of(std::uint64_t start, std::uint64_t end) {
    Made most;
    std::uint64_t most_bytes = 0;
    while (start < end) {
      const auto [made, until] = at(start);
      const std::uint64_t bytes = std::min(until, end) - start;
      if (bytes > most_bytes) most = made, most_bytes = bytes;
      start += bytes;
    }
    return most;
  }

 private:
  const std::vector<Range>& copied_;
  RangeCursor<OwnedRange> owners_;
  const OwnedRange* last_owner_ = nullptr;
  Range data_;
};

struct Sums {
  std::map<Made, std::int64_t> bytes;
  std::vector<Range> nobodys;
};

Sums sums_by_site(const std::vector<Range>& ranges, const std::vector<OwnedRange>& owned) {
  Sums sums;
  AllocationSites sites(ranges, owned);
  for (const Range& range : ranges) {
    for (std::uint64_t at = range.start; at < range.end;) {
      const auto [made, until] = sites.at(at);
      const std::uint64_t end = std::min(range.end, until);
      sums.bytes[made] += static_cast<std::int64_t>(end - at);
      if (made == Made{}) sums.nobodys.push_back({at, end});
      at = end;
    }
  }
  return sums;
}

using WrittenBy = std::map<std::pair<Made, StackId>, Written>;  // by who allocated, who wrote

// Bytes without an allocation site lie in a heap of small blocks: the sites of these blocks get their shares of them,
// in the same proportion for each writer. A share below a page stays without a site.
void give_to_small_blocks(const std::vector<HeapShares::Share>& sites, std::uint64_t page_bytes, Sums& sums,
                          WrittenBy& written) {
  const auto least_bytes = static_cast<std::int64_t>(page_bytes);
  const auto nobodys = static_cast<double>(sums.bytes[{}]);
  WrittenBy parts;
  for (const HeapShares::Share& site : sites) {
    if (site.stack == kEmptyStack || site.bytes < least_bytes) continue;
    sums.bytes[{site.stack, false}] += site.bytes;
    sums.bytes[{}] -= site.bytes;
    const double share = static_cast<double>(site.bytes) / nobodys;
    for (const auto& [by, sum] : written) {
      const auto part_bytes = static_cast<std::int64_t>(static_cast<double>(sum.bytes) * share);
      if (by.first == Made{} && part_bytes >= least_bytes)
        parts[{{site.stack, false}, by.second}] = {part_bytes, sum.variance * share * share};
    }
  }
  for (const auto& [by, part] : parts) {
    Written& whole = written[{Made{}, by.second}];
    if (whole.bytes < part.bytes) continue;
    const double left = static_cast<double>(whole.bytes - part.bytes) / static_cast<double>(whole.bytes);
    whole.bytes -= part.bytes;
    whole.variance *= left * left;
    Written& sum = written[by];
    sum.bytes += part.bytes;
    sum.variance += part.variance;
  }
}

}  // namespace

void blame_copies(const std::vector<Range>& ranges, const std::vector<OwnedRange>& owned, const CopyBlame& blame,
                  std::vector<CowSlice>& slices) {
  WrittenBy written;
  AllocationSites sites(ranges, owned);
  const auto page = static_cast<double>(blame.page_bytes);
  for (const Range& range : ranges) {
    const auto samples =
        blame.touched.copy_candidates(range.start, range.end, 0, std::numeric_limits<std::uint64_t>::max());
    for (const TouchSample& sample : samples) {
      if (sample.stack == kEmptyStack) continue;
      Written& sum = written[{sites.most_of(sample.page, sample.page + blame.page_bytes), sample.stack}];
      const double weight = sample.weight;
      sum.bytes += static_cast<std::int64_t>(sample.weight * blame.page_bytes);
      sum.variance += weight * (weight - 1) * page * page;
    }
  }
  Sums sums = sums_by_site(ranges, owned);
  if (blame.small_blocks != nullptr)
    give_to_small_blocks(small_block_sites(sums.nobodys, *blame.small_blocks), blame.page_bytes, sums, written);
  std::map<Made, std::int64_t>& rest = sums.bytes;
  for (const auto& [by, sum] : written) {
    if (sum.bytes == 0) continue;
    const auto& [made, writer] = by;
    rest[made] -= sum.bytes;
    slices.push_back({.time_s = blame.time_s,
                      .allocated_at = made.at,
                      .written_at = writer,
                      .copied_bytes = sum.bytes,
                      .variance = sum.variance,
                      .in_large_block = made.in_large_block});
  }
  for (const auto& [made, bytes] : rest)
    if (bytes != 0)
      slices.push_back({.time_s = blame.time_s,
                        .allocated_at = made.at,
                        .copied_bytes = bytes,
                        .in_large_block = made.in_large_block});
}

}  // namespace whyrss
