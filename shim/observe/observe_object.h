// Objects of CPython's small-object allocator: as blocks of malloc are, and kept apart from their counts. Addresses and
// sizes of records are those of the pool's blocks.
//
// Sampled mode: as small blocks of malloc (sampling.h), with a countdown of their own, at the same mean distance or,
// where a program allocates fast, at up to 16 times that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/events/caller.h"
#include "shim/events/thread_state.h"
#include "shim/heap/pymalloc_pages.h"

namespace whyrss::shim {

// Exact mode, of each object.
void observe_object(const Caller& caller, const PymallocBlock& block) noexcept;
// Before the real release.
void observe_object_release(const PymallocBlock& block) noexcept;
// The resize announced by the last release of this block failed.
void observe_object_release_undone(const PymallocBlock& block) noexcept;

// Sampled mode: bytes that may still be asked for before the next sampled one, of all threads, since each call holds
// the GIL. Negative: it is reached. Where several interpreters have a GIL each they lose some of each other's counts.
extern constinit std::int64_t g_object_countdown;

// Of every request. False: take_object_sample must be called.
[[gnu::always_inline]] inline bool passes_unsampled(std::size_t size_bytes) noexcept {
  bool reached = false;
  __asm__ volatile("subq %2, %0" : "+m"(g_object_countdown), "=@ccs"(reached) : "er"(size_bytes));
  return !reached;
}

// What is known of a sampled request; 0 bytes: it is not to be logged.
struct ObjectSample {
  std::uint64_t sampled_bytes = 0;  // of trace::BlockRecord
  explicit operator bool() const noexcept { return sampled_bytes != 0; }
};
// Draws the distance to the next sampled byte.
ObjectSample take_object_sample(std::size_t requested) noexcept;
// A thread begins or a process was forked: not at the same distance as elsewhere.
void restart_object_countdown(ThreadState& thread) noexcept;

// An object that lies in `block` of its pool.
void log_sampled_object(const Caller& caller, const ObjectSample& sample, const PymallocBlock& block,
                        const void* object) noexcept;
// Before the release of an object in its pool, of which live_blocks() says that it may have been sampled. True: it was.
bool log_sampled_release(const void* object) noexcept;
// The resize announced by a release that returned true failed.
void log_sampled_release_undone(const void* object) noexcept;

}  // namespace whyrss::shim
