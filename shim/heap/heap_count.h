// The countdown of a thread to its next block that needs more than counting: the next sampled byte, or a block that is
// logged for its size. One compare in the fast path finds both, so the countdown is cut off at the smallest size that
// must be walked.
#pragma once

#include <algorithm>

#include "shim/events/thread_state.h"
#include "shim/heap/heap_settings.h"
#include "shim/heap/sampling.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Where only the requested size is known before the real call: no allocator gives twice as much.
inline constexpr std::uint64_t kSurelySmallRequest = trace::kLargeBlockBytes / 2;

// Adds what the fast path counted, and stops it.
inline void settle_countdown(ThreadState& thread) noexcept {
  const std::uint64_t taken = thread.armed - thread.left - thread.request_left;
  thread.small_allocated_bytes += taken;
  thread.gap -= taken;
  thread.armed = thread.left = thread.request_left = 0;
}

// Whether blocks up to trace::kAlwaysLoggedBytes are sampled and counted for now: the thread has logged some 3,000 of
// them, and 4 for each millisecond.
inline bool counts_large(ThreadState& thread) noexcept { return thread.large_pace.coarseness() > 1; }

// Lets the fast path run again. In exact mode, after a thread's end and before sizes are known there is none.
inline void arm_countdown(ThreadState& thread) noexcept {
  if (heap().exact || thread.ended || heap().learning) return;
  const bool by_usable = heap().directory.load(std::memory_order_relaxed) != nullptr;
  const std::uint64_t logged_from = counts_large(thread) ? trace::kAlwaysLoggedBytes : trace::kLargeBlockBytes;
  thread.armed = std::min(thread.gap, by_usable ? logged_from : kSurelySmallRequest);
  (by_usable ? thread.left : thread.request_left) = thread.armed;
}

inline void draw_gap(ThreadState& thread) noexcept {
  thread.gap_coarseness = thread.pace.coarseness();
  thread.gap = next_gap(thread.random, heap().sample_bytes << thread.gap_coarseness);
}

// A thread begins: nothing counted, a random distance to the first sample.
inline void start_countdown(ThreadState& thread, std::uint64_t seed) noexcept {
  thread.armed = thread.left = thread.request_left = 0;
  thread.small_allocations = thread.small_allocated_bytes = 0;
  thread.small_releases = thread.small_released_bytes = 0;
  thread.random = seed;
  thread.pace = thread.large_pace = {};
  draw_gap(thread);
  arm_countdown(thread);
}

// Every block passes unseen.
inline void stop_counting(ThreadState& thread) noexcept {
  thread.left = 0;
  thread.armed = thread.request_left = UINT64_MAX;
}

// What the countdown takes for a request where usable sizes are not counted: not 0, or it would never be sampled.
constexpr std::uint64_t counted_request(std::size_t size_bytes) noexcept { return size_bytes | 1; }

// Counts a block of `bytes` (not 0) with the countdown settled: trace::BlockRecord::sampled_bytes, 0: it is no sample.
inline std::uint64_t count_down(ThreadState& thread, std::uint64_t bytes) noexcept {
  ++thread.small_allocations;
  thread.small_allocated_bytes += bytes;
  if (bytes < thread.gap) {
    thread.gap -= bytes;
    return 0;
  }
  const std::uint64_t coarseness = thread.gap_coarseness;
  draw_gap(thread);
  return bytes | coarseness << trace::BlockRecord::kCoarsenessShift;
}

// Adds this thread's small-block counts to the process slot.
void flush_counts(ThreadState& thread) noexcept;

}  // namespace whyrss::shim
