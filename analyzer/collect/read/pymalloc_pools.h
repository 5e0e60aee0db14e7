// How full the pools of CPython's small-object allocator are, by their headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collect/read/target_memory.h"

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

// Reads the headers of the pools of one process. Each lies on a page of its own and takes 0.7 us: of a large process
// they are read in turn where they need not all be as of now. Those of one turn lie all over it; where they tell of
// much that came or went, all the others are read too.
class PoolReader {
 public:
  enum class Extent { all, in_turn };
  static constexpr std::size_t kInTurn = 2048;  // beside those that are new

  // Sets the PageLiveness of pymalloc pages. `addresses`: of resident pages in arenas, sorted; `pages`: their words,
  // which get live_units and ever_held.
  PoolsRead read(const TargetMemory& memory, std::uint64_t pool_bytes, std::span<const std::uint64_t> addresses,
                 std::span<std::uint16_t* const> pages, Extent extent);
  // Some had no turn in the last reading.
  [[nodiscard]] bool left_some() const { return left_some_; }
  // What the last reading took in CPU time beyond one in turn; once.
  std::int64_t take_extra_cpu_ns() { return std::exchange(extra_cpu_ns_, 0); }

 private:
  struct Pool {
    std::uint64_t address = 0;
    PoolUse use;
    bool is_due = true, is_new = true;
  };

  void list_pools(std::uint64_t pool_bytes, std::span<const std::uint64_t> addresses, Extent extent);
  void update(const TargetMemory& memory, std::uint64_t pool_bytes);
  void take_turn(std::uint64_t pool_bytes);
  struct Change {
    std::int64_t held_bytes = 0, grown_bytes = 0;
  };
  // Of those among them that were known.
  Change read_due(const TargetMemory& memory, std::uint64_t pool_bytes);

  std::vector<Pool> pools_;  // that were there last, sorted
  std::uint64_t turn_ = 0;   // counts readings
  std::int64_t extra_cpu_ns_ = 0;
  bool left_some_ = false;
};

}  // namespace whyrss
