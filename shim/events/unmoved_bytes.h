// What moves neither RSS nor page faults, and is worth a last walk all the same: memory that was given up with
// MADV_FREE or locked, blocks of a library's allocator, which keeps their pages, and objects of CPython in arenas that
// had room. Threads may miscount each other's. Any thread, async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/events/thread_state.h"
#include "shim/trace/pool.h"

namespace whyrss::shim {

// CLOCK_MONOTONIC, modulo 2^32, as trace::ProcessSlot::walked_ms.
std::uint32_t now_ms() noexcept;

// Given up, locked, or taken and freed as such blocks.
void note_unmoved(ThreadState& thread, std::size_t size_bytes) noexcept;
// Bytes noted since the last walk of the process began.
std::uint64_t unmoved_since_walk(const trace::ProcessSlot& slot) noexcept;

// Objects that were made, or freed (negative): those that come and go cancel out.
void note_objects(ThreadState& thread, std::int64_t size_bytes) noexcept;
// Sum of those noted since the last walk of the process began.
std::int64_t objects_since_walk(const trace::ProcessSlot& slot) noexcept;

// A child was waited for: what was shared with it is now of this process alone.
void note_ended_child(ThreadState& thread) noexcept;
// Whether one was since the last walk of the process began.
bool child_ended_since_walk(const trace::ProcessSlot& slot) noexcept;

// Given up with MADV_FREE. What is written to again afterwards moves nothing that could be asked for.
void note_lazily_freed(std::size_t size_bytes) noexcept;
// Ever.
std::uint64_t lazily_freed_bytes() noexcept;

}  // namespace whyrss::shim
