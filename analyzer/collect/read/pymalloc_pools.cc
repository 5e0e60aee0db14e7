#include "collect/read/pymalloc_pools.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "shim/trace/liveness_format.h"
#include "shim/trace/recording_format.h"
#include "support/clock.h"

namespace whyrss {
namespace {

using trace::kLivenessPageBytes;
using trace::PageLiveness;

constexpr std::uint32_t kSizeClasses = 32;  // up to SMALL_REQUEST_THRESHOLD, 512 bytes
constexpr std::uint64_t kAlignment = 16;

// Of what the pools of one turn held, and not less than this.
constexpr std::int64_t kMuchPart = 16, kMuchBytes = 64 * 1024;

}  // namespace

PoolUse use_of_pool(const PoolHead& head, std::uint64_t pool_bytes) {
  const std::uint64_t block_bytes = (std::uint64_t{head.size_class} + 1) * kAlignment;
  const bool plausible = head.size_class < kSizeClasses &&
                         head.live_blocks <= (pool_bytes - sizeof head) / block_bytes &&
                         head.most_next_offset == pool_bytes - block_bytes;
  if (!plausible) return {};
  return {.used = true, .live_bytes = head.live_blocks * block_bytes, .block_bytes = block_bytes};
}

// Of others the header's page is not resident.
void PoolReader::list_pools(std::uint64_t pool_bytes, std::span<const std::uint64_t> addresses, Extent extent) {
  std::vector<Pool> before = std::exchange(pools_, {});
  auto known = before.begin();
  for (const std::uint64_t address : addresses) {
    if (address % pool_bytes != 0) continue;
    while (known != before.end() && known->address < address) ++known;
    const bool is_known = known != before.end() && known->address == address && extent == Extent::in_turn;
    pools_.push_back(
        {.address = address, .use = is_known ? known->use : PoolUse{}, .is_due = !is_known, .is_new = !is_known});
  }
}

void PoolReader::take_turn(std::uint64_t pool_bytes) {
  const std::uint64_t turns = (pools_.size() + kInTurn - 1) / kInTurn;
  for (Pool& pool : pools_)
    if (pool.address / pool_bytes % turns == turn_ % turns) pool.is_due = true;
  ++turn_;
}

PoolReader::Change PoolReader::read_due(const TargetMemory& memory, std::uint64_t pool_bytes) {
  std::vector<std::uint64_t> addresses;
  for (const Pool& pool : pools_)
    if (pool.is_due) addresses.push_back(pool.address);
  const std::vector<std::byte> heads = memory.read_each(addresses, sizeof(PoolHead));
  Change change;
  const std::byte* next = heads.data();
  for (Pool& pool : pools_) {
    if (!pool.is_due) continue;
    PoolHead head{};
    std::memcpy(&head, next, sizeof head);
    next += sizeof head;
    const PoolUse before = std::exchange(pool.use, use_of_pool(head, pool_bytes));
    if (pool.is_new) continue;
    change.held_bytes += static_cast<std::int64_t>(before.live_bytes);
    change.grown_bytes += static_cast<std::int64_t>(pool.use.live_bytes) - static_cast<std::int64_t>(before.live_bytes);
  }
  return change;
}

void PoolReader::update(const TargetMemory& memory, std::uint64_t pool_bytes) {
  take_turn(pool_bytes);
  const auto due = static_cast<std::size_t>(std::ranges::count_if(pools_, &Pool::is_due));
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  const Change change = read_due(memory, pool_bytes);
  const bool is_much = std::abs(change.grown_bytes) > std::max(kMuchBytes, change.held_bytes / kMuchPart);
  left_some_ = due < pools_.size() && !is_much;
  if (is_much && due < pools_.size()) {
    for (Pool& pool : pools_) pool.is_due = !pool.is_due;
    read_due(memory, pool_bytes);
  }
  const auto cost_ns = static_cast<double>(thread_cpu_ns() - begin_cpu_ns);
  const std::size_t count = left_some_ ? due : pools_.size();
  const double extra = 1 - static_cast<double>(kInTurn) / static_cast<double>(std::max(count, kInTurn));
  extra_cpu_ns_ = static_cast<std::int64_t>(cost_ns * extra);
}

PoolsRead PoolReader::read(const TargetMemory& memory, std::uint64_t pool_bytes,
                           std::span<const std::uint64_t> addresses, std::span<std::uint16_t* const> pages,
                           Extent extent) {
  list_pools(pool_bytes, addresses, extent);
  update(memory, pool_bytes);
  PoolsRead read;
  std::size_t page = 0;
  for (const auto& [pool, use, is_due, is_new] : pools_) {
    if (!use.used) continue;
    read.live_bytes += use.live_bytes;
    if (use.live_bytes > 0) read.used.push_back({.address = pool, .block_bytes = use.block_bytes});
    while (page < addresses.size() && addresses[page] < pool) ++page;
    std::size_t end = page;
    while (end < addresses.size() && addresses[end] < pool + pool_bytes) ++end;
    // Which of its blocks are live only the pool's free list knows: they count evenly on its pages that are there, so
    // that what is free beside them is slack. CPython gives back whole arenas, never such a page.
    std::uint64_t left = use.live_bytes / trace::kLivenessUnitBytes;
    for (; page < end; ++page) {
      const std::uint64_t here = std::min((left + end - page - 1) / (end - page), trace::kLivenessPageUnits);
      left -= here;
      *pages[page] = static_cast<std::uint16_t>(PageLiveness::pymalloc | PageLiveness::ever_held | here);
    }
  }
  return read;
}

}  // namespace whyrss
