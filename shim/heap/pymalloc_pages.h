// The pages of CPython's small-object arenas in the liveness table: their pools say themselves how full they are
// (trace/liveness_format.h), and a reader must know which pages to ask.
// Any thread that may allocate; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/events/thread_state.h"

namespace whyrss::shim {

// Larger requests pymalloc hands on to malloc (SMALL_REQUEST_THRESHOLD in Objects/obmalloc.c).
inline constexpr std::size_t kMostPoolRequest = 512;

// Tells the reader how large a pool is. Once, before the first arena.
void set_pymalloc_pool_bytes(std::uint32_t pool_bytes) noexcept;

// An arena, after it was mapped. The thread is entered and Busy held by the caller.
void mark_pymalloc_arena(ThreadState& thread, const void* arena, std::size_t size_bytes) noexcept;
// Before it is given back: its addresses may become anything.
void clear_pymalloc_arena(const void* arena, std::size_t size_bytes) noexcept;

// The block of a pool in a marked arena; start 0: the address lies in none.
struct PymallocBlock {
  std::uintptr_t start;  // with what debug hooks put before the object
  std::size_t size_bytes;
};
PymallocBlock pymalloc_block_at(const void* address) noexcept;

}  // namespace whyrss::shim
