// Exact mode: the commonest events by the shortest way. A small block comes or goes in a thread that was entered,
// outside of our own code, and the lease has room. What can change without this thread's doing is checked each time
// (fork, unloaded code); whatever else is special is left to the general functions (observe.h), which then do all of
// it. Nothing here touches errno, or calls into the kernel but for a new chunk and once for a recall (stack_recall.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/events/caller.h"
#include "shim/events/thread_state.h"
#include "shim/heap/pymalloc_pages.h"

namespace whyrss::shim {

// After a slow event of exact mode: whether the thread may try.
void allow_fast_path(ThreadState& thread) noexcept;

// A block that the real function returned and the fast path did not count; `requested` bytes, by the Caller of these
// registers. Returns it, so that entries may end in this call.
void* count_allocated(void* block, std::size_t requested, std::uint64_t ip, std::uint64_t sp,
                      std::uint64_t bp) noexcept;

// As observe_release. False: not done, nothing has happened.
bool release_on_fast_path(ThreadState& thread, const void* block) noexcept;

// As observe_object and observe_object_release. False: not done, nothing has happened.
bool object_on_fast_path(ThreadState& thread, const Caller& caller, const PymallocBlock& block) noexcept;
bool object_release_on_fast_path(ThreadState& thread, const PymallocBlock& block) noexcept;

}  // namespace whyrss::shim
