// What is live in the heap by our own count: small blocks by the liveness table, large ones by a running sum.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/sys/cheap_atomics.h"

namespace whyrss::shim {

// Blocks from trace::kLargeBlockBytes on that are followed (live_blocks.h). Any thread; fork copies it.
struct LargeBlocks {
  std::atomic<std::int64_t> count{0}, bytes{0};

  void add(std::size_t usable) noexcept {
    add_to(count, 1);
    add_to(bytes, static_cast<std::int64_t>(usable));
  }
  void remove(std::size_t usable) noexcept {
    add_to(count, -1);
    add_to(bytes, -static_cast<std::int64_t>(usable));
  }
};
extern constinit LargeBlocks g_large_blocks;

// Usable bytes of all live blocks; less than 0: there is no table. Takes some 10 us and 4 us per MiB of the table that
// was ever written. One call at a time.
std::int64_t sum_live_bytes() noexcept;

}  // namespace whyrss::shim
