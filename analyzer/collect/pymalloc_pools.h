// How full the pools of CPython's small-object allocator are, by their headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collect/target_memory.h"

namespace whyrss {

// struct pool_header of CPython's Objects/obmalloc.c (3.8, 3.9) and Include/internal/pycore_obmalloc.h (3.10 on), the
// same in all of them.
struct PoolHead {
  std::uint32_t live_blocks, padding;
  std::uint64_t free_block, next_pool, previous_pool;
  std::uint32_t arena_index;
  std::uint32_t size_class;  // blocks of (size_class + 1) * 16 bytes
  std::uint32_t next_offset, most_next_offset;
};
static_assert(sizeof(PoolHead) == 48);

// Nothing where the bytes are no header of a pool in use: never handed out, or not CPython's.
struct PoolUse {
  bool used = false;
  std::uint64_t live_bytes = 0;  // whole blocks
  std::uint64_t block_bytes = 0;
};
PoolUse use_of_pool(const PoolHead& head, std::uint64_t pool_bytes);

// One with live blocks.
struct UsedPool {
  std::uint64_t address = 0, block_bytes = 0;
};

struct PoolsRead {
  std::uint64_t live_bytes = 0;  // in all pools
  std::vector<UsedPool> used;
};

// Sets the PageLiveness of pymalloc pages. `addresses`: of resident pages in arenas, sorted; `pages`: their words,
// which get live_units and ever_held.
PoolsRead read_pools(const TargetMemory& memory, std::uint64_t pool_bytes, std::span<const std::uint64_t> addresses,
                     std::span<std::uint16_t* const> pages);

}  // namespace whyrss
