// Objects of CPython's small-object allocator: as blocks of malloc are, and kept apart from their counts. Addresses and
// sizes of records are those of the pool's blocks.
//
// Sampled mode: as small blocks of malloc (sampling.h), with a countdown of their own, at the same mean distance or,
// where a thread allocates fast, at up to 16 times that.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/pymalloc_pages.h"
#include "shim/stack_capture.h"
#include "shim/thread_state.h"

namespace whyrss::shim {

// Exact mode, of each object.
void observe_object(const Caller& caller, const PymallocBlock& block) noexcept;
// Before the real release.
void observe_object_release(const PymallocBlock& block) noexcept;
// The resize announced by the last release of this block failed.
void observe_object_release_undone(const PymallocBlock& block) noexcept;

// What the countdown takes for a request: not 0, and about what the pool gives, at the price of one instruction.
constexpr std::uint64_t counted_object(std::size_t size_bytes) noexcept { return size_bytes + 8; }

// Sampled mode, of every allocation. False: the object must be given to observe_sampled_object; nothing was counted.
[[gnu::always_inline]] inline bool passes_unsampled(ThreadState& thread, std::size_t size_bytes) noexcept {
  // Read once: see countdown() of entry_allocate.h.
  const std::uint64_t left = std::atomic_ref(thread.object_left).load(std::memory_order_relaxed);
  const std::uint64_t counted = counted_object(size_bytes);
  if (counted >= left) [[unlikely]]
    return false;
  thread.object_left = left - counted;
  return true;
}
void observe_sampled_object(const Caller& caller, const void* object, std::size_t requested) noexcept;

// Before the real release of an object of which live_blocks() says that it may have been sampled. True: it was.
bool observe_sampled_release(const void* object) noexcept;
// The resize announced by a release that returned true failed.
void observe_sampled_release_undone(const void* object) noexcept;

}  // namespace whyrss::shim
