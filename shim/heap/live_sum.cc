#include "shim/heap/live_sum.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
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
constinit Entries g_directory_entries{}, g_leaf_entries{};  // too large for small stacks

// Which pages were ever written; all, where pagemap does not say. To read the others would map zero pages.
void find_written(const RawFile& pagemap, std::uint64_t start, std::size_t page_count, Entries& entries) noexcept {
  const std::span bytes(reinterpret_cast<char*>(entries.data()), page_count * sizeof(entries[0]));
  if (!pagemap || pagemap.read_at(bytes, start / kPageBytes * sizeof(entries[0])) != bytes.size())
    entries.fill(kWritten);
}

std::int64_t sum_leaf(const RawFile& pagemap, std::uint64_t leaf) noexcept {
  constexpr std::size_t kCounters = kPageBytes / sizeof(std::uint32_t);
  std::int64_t units = 0;
  find_written(pagemap, leaf, kLeafTablePages, g_leaf_entries);
  for (std::size_t page = 0; page < kLeafTablePages; ++page) {
    if ((g_leaf_entries[page] & kWritten) == 0) continue;
    const auto* counters = reinterpret_cast<const std::uint32_t*>(leaf + page * kPageBytes);
    for (std::size_t i = 0; i < kCounters; ++i)
      units += static_cast<std::int16_t>(__atomic_load_n(&counters[i], __ATOMIC_RELAXED));
  }
  return units;
}

std::int64_t sum_directory(const RawFile& pagemap, LivenessDirectory directory) noexcept {
  constexpr std::size_t kPerPage = kPageBytes / sizeof(std::uint64_t);
  std::int64_t units = 0;
  find_written(pagemap, reinterpret_cast<std::uint64_t>(directory), kDirectoryPages, g_directory_entries);
  for (std::size_t page = 0; page < kDirectoryPages; ++page) {
    if ((g_directory_entries[page] & kWritten) == 0) continue;
    for (std::size_t i = page * kPerPage; i < (page + 1) * kPerPage; ++i)
      if (const std::uint64_t leaf = directory[i].load(std::memory_order_acquire); leaf != 0)
        units += sum_leaf(pagemap, leaf);
  }
  return units;
}

}  // namespace

std::int64_t sum_live_bytes() noexcept {
  if (heap().directory.load(std::memory_order_acquire) == nullptr) return -1;
  const RawFile pagemap("/proc/self/pagemap", O_RDONLY);
  std::int64_t units = 0;
  visit_directories([&](LivenessDirectory directory) { units += sum_directory(pagemap, directory); });
  const std::int64_t small = units * static_cast<std::int64_t>(trace::kLivenessUnitBytes);
  return std::max<std::int64_t>(small + g_large_blocks.bytes.load(std::memory_order_relaxed), 0);
}

}  // namespace whyrss::shim
