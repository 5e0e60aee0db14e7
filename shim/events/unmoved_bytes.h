// What moves neither RSS nor page faults, and is worth a last walk all the same: memory that was given up with
// MADV_FREE or locked, and blocks of a library's allocator, which keeps their pages. Threads may miscount each
// other's. Any thread, async-signal-safe.
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

// Given up with MADV_FREE. What is written to again afterwards moves nothing that could be asked for.
void note_lazily_freed(std::size_t size_bytes) noexcept;
// Ever.
std::uint64_t lazily_freed_bytes() noexcept;

}  // namespace whyrss::shim
