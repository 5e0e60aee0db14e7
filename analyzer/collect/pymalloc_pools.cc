#include "collect/pymalloc_pools.h"

#include <algorithm>
#include <cstring>

#include "shim/trace/liveness_format.h"
#include "shim/trace/recording_format.h"

namespace whyrss {
namespace {

using trace::kLivenessPageBytes;
using trace::PageLiveness;

constexpr std::uint32_t kSizeClasses = 32;  // up to SMALL_REQUEST_THRESHOLD, 512 bytes
constexpr std::uint64_t kAlignment = 16;
constexpr std::uint64_t kMostUnits = kLivenessPageBytes / trace::kLivenessUnitBytes;

}  // namespace

PoolUse use_of_pool(const PoolHead& head, std::uint64_t pool_bytes) {
  const std::uint64_t block_bytes = (std::uint64_t{head.size_class} + 1) * kAlignment;
  const bool plausible = head.size_class < kSizeClasses &&
                         head.live_blocks <= (pool_bytes - sizeof head) / block_bytes &&
                         head.most_next_offset == pool_bytes - block_bytes;
  if (!plausible) return {};
  return {.used = true, .live_bytes = head.live_blocks * block_bytes, .block_bytes = block_bytes};
}

PoolsRead read_pools(const TargetMemory& memory, std::uint64_t pool_bytes, std::span<const std::uint64_t> addresses,
                     std::span<std::uint16_t* const> pages) {
  std::vector<std::uint64_t> pools;
  for (const std::uint64_t address : addresses)
    if (address % pool_bytes == 0) pools.push_back(address);  // of others the header's page is not resident
  const std::vector<std::byte> heads = memory.read_each(pools, sizeof(PoolHead));
  PoolsRead read;
  std::size_t page = 0;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    PoolHead head{};
    std::memcpy(&head, heads.data() + i * sizeof head, sizeof head);
    const PoolUse use = use_of_pool(head, pool_bytes);
    if (!use.used) continue;
    read.live_bytes += use.live_bytes;
    if (use.live_bytes > 0) read.used.push_back({.address = pools[i], .block_bytes = use.block_bytes});
    while (page < addresses.size() && addresses[page] < pools[i]) ++page;
    std::size_t end = page;
    while (end < addresses.size() && addresses[end] < pools[i] + pool_bytes) ++end;
    // Which of its blocks are live only the pool's free list knows: they count evenly on its pages that are there, so
    // that what is free beside them is slack. CPython gives back whole arenas, never such a page.
    std::uint64_t left = use.live_bytes / trace::kLivenessUnitBytes;
    for (; page < end; ++page) {
      const std::uint64_t here = std::min((left + end - page - 1) / (end - page), kMostUnits);
      left -= here;
      *pages[page] = static_cast<std::uint16_t>(PageLiveness::pymalloc | PageLiveness::ever_held | here);
    }
  }
  return read;
}

}  // namespace whyrss
