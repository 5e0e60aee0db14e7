#include "shim/heap/live_sum.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "shim/heap/heap_settings.h"
#include "shim/heap/liveness.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {

constinit LargeBlocks g_large_blocks;

namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kDirectoryPages = trace::kDirectoryEntries * sizeof(std::uint64_t) / kPageBytes;
constexpr std::size_t kLeafTablePages = trace::kLeafBytes / kPageBytes;
constexpr std::size_t kMostPages = std::max(kDirectoryPages, kLeafTablePages);

// Bits of a pagemap entry: present, swapped.
constexpr std::uint64_t kWritten = std::uint64_t{3} << 62;

using Entries = std::array<std::uint64_t, kMostPages>;
constinit Entries g_directory_entries{}, g_leaf_entries{};            // too large for small stacks
constinit std::array<std::uint32_t, kLeafTablePages> g_written_in{};  // a bit for each leaf that has the page

// Which pages were ever written; all, where pagemap does not say. To read the others would map zero pages.
void find_written(const RawFile& pagemap, std::uint64_t start, std::size_t page_count, Entries& entries) noexcept {
  const std::span bytes(reinterpret_cast<char*>(entries.data()), page_count * sizeof(entries[0]));
  if (!pagemap || pagemap.read_at(bytes, start / kPageBytes * sizeof(entries[0])) != bytes.size())
    entries.fill(kWritten);
}

// The leaves of one part of the address space, the common one first.
struct Leaves {
  std::array<std::uint64_t, 1 + trace::kThreadDirectories> addresses{};
  std::size_t count = 0;
};

Leaves leaves_at(std::uint64_t index) noexcept {
  Leaves leaves;
  visit_directories([&](LivenessDirectory directory) {
    if (const std::uint64_t leaf = directory[index].load(std::memory_order_acquire); leaf != 0)
      leaves.addresses[leaves.count++] = leaf;
  });
  return leaves;
}

// Only the sum of what all threads counted on a page is what is live there.
std::int64_t sum_leaves(const RawFile& pagemap, const Leaves& leaves) noexcept {
  constexpr std::size_t kCounters = kPageBytes / sizeof(std::uint32_t);
  g_written_in.fill(0);
  for (std::size_t i = 0; i < leaves.count; ++i) {
    find_written(pagemap, leaves.addresses[i], kLeafTablePages, g_leaf_entries);
    for (std::size_t page = 0; page < kLeafTablePages; ++page)
      if ((g_leaf_entries[page] & kWritten) != 0) g_written_in[page] |= std::uint32_t{1} << i;
  }
  std::int64_t units = 0;
  for (std::size_t at = 0; at < kLeafTablePages * kCounters; ++at) {
    std::uint32_t counter = 0;
    for (std::uint32_t in = g_written_in[at / kCounters]; in != 0; in &= in - 1) {
      const auto* leaf = reinterpret_cast<const std::uint32_t*>(leaves.addresses[std::countr_zero(in)]);
      counter += __atomic_load_n(&leaf[at], __ATOMIC_RELAXED);
    }
    units += static_cast<std::int16_t>(counter);
  }
  return units;
}

std::int64_t sum_block_starts(const RawFile& pagemap, std::uint64_t leaf) noexcept {
  constexpr std::size_t kWords = kPageBytes / sizeof(std::uint32_t);
  find_written(pagemap, leaf, kLeafTablePages, g_leaf_entries);
  std::uint64_t bytes = 0;
  for (std::size_t at = 0; at < kLeafTablePages * kWords; ++at)
    if ((g_leaf_entries[at / kWords] & kWritten) != 0)
      bytes += trace::block_start::live_bytes(
          __atomic_load_n(reinterpret_cast<const std::uint32_t*>(leaf) + at, __ATOMIC_RELAXED));
  return static_cast<std::int64_t>(bytes);
}

// Calls visit(index) for the entries of a directory that have a leaf.
template <class Visit>
void visit_leaves(const RawFile& pagemap, LivenessDirectory directory, Visit visit) noexcept {
  constexpr std::size_t kPerPage = kPageBytes / sizeof(std::uint64_t);
  find_written(pagemap, reinterpret_cast<std::uint64_t>(directory), kDirectoryPages, g_directory_entries);
  for (std::size_t page = 0; page < kDirectoryPages; ++page) {
    if ((g_directory_entries[page] & kWritten) == 0) continue;
    for (std::size_t i = page * kPerPage; i < (page + 1) * kPerPage; ++i)
      if (directory[i].load(std::memory_order_acquire) != 0) visit(i);
  }
}

}  // namespace

std::int64_t sum_live_bytes() noexcept {
  const LivenessDirectory common = heap().directory.load(std::memory_order_acquire);
  if (common == nullptr) return -1;
  const RawFile pagemap("/proc/self/pagemap", O_RDONLY);
  std::int64_t units = 0, larger = 0;
  visit_leaves(pagemap, common, [&](std::size_t index) { units += sum_leaves(pagemap, leaves_at(index)); });
  const LivenessDirectory starts = block_starts(common);
  visit_leaves(pagemap, starts, [&](std::size_t index) {
    larger += sum_block_starts(pagemap, starts[index].load(std::memory_order_acquire));
  });
  const std::int64_t small = units * static_cast<std::int64_t>(trace::kLivenessUnitBytes);
  return std::max<std::int64_t>(small + larger + g_large_blocks.bytes.load(std::memory_order_relaxed), 0);
}

}  // namespace whyrss::shim
