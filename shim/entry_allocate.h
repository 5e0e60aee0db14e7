// What the heap entry points share. An entry is exported under the name of the function it interposes, has a
// few lines, and leaves the work to observe_*.
//
// A block is counted by the innermost of our entries that sees it (operator new of libstdc++ calls malloc, a custom
// calloc may), with the stack of the outermost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/heap_count.h"
#include "shim/live_blocks.h"
#include "shim/liveness.h"
#include "shim/observe.h"
#include "shim/quick_events.h"
#include "shim/stack_capture.h"
#include "shim/thread_state.h"

#define WHYRSS_ENTRY extern "C" __attribute__((visibility("default")))

namespace whyrss::shim {

// Marks the heap entry that runs, for the entries which the real function calls. No destructor takes the mark away
// when the real function throws; outermost() recognises what is left behind.
class HeapCall {
 public:
  [[gnu::always_inline]] HeapCall(ThreadState& thread, const Caller& caller) noexcept : thread_(thread) {
    thread.outer_sp = reinterpret_cast<std::uintptr_t>(this);
    thread.outer_return_slot = reinterpret_cast<const std::uintptr_t*>(caller.sp) - 1;
    thread.outer_return = caller.ip;
    thread.outer_bp = caller.bp;
  }
  HeapCall(const HeapCall&) = delete;
  HeapCall& operator=(const HeapCall&) = delete;
  ~HeapCall() { thread_.outer_sp = 0; }

 private:
  ThreadState& thread_;
};

// A countdown of heap_count.h, read once: a handler that allocates may set it anew before it is written back, and what
// is taken from a smaller one would wrap it around, so that nothing was ever looked at again. As it is, the gap to the
// next sample errs by at most one countdown.
inline std::uint64_t countdown(std::uint64_t& left) noexcept {
  return std::atomic_ref(left).load(std::memory_order_relaxed);
}

// The fast path of an allocation where live bytes are not counted page by page: true when the real function may be
// tail-called.
[[gnu::always_inline]] inline bool passes_by_request(std::size_t size_bytes) noexcept {
  ThreadState& thread = thread_state();
  const std::uint64_t left = countdown(thread.request_left);
  if (size_bytes >= left) return false;
  thread.request_left = left - counted_request(size_bytes);
  ++thread.small_allocations;
  return true;
}

// A block that the real function returned.
[[gnu::always_inline]] inline void count_allocated(ThreadState& thread, const void* block,
                                                   std::size_t requested) noexcept {
  if (const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire); directory != nullptr) {
    const std::size_t usable = usable_bytes(block);
    const std::uint64_t left = countdown(thread.left);
    if (usable < left && change_live(directory, block, usable, LiveChange::allocate)) [[likely]] {
      thread.left = left - usable;
      ++thread.small_allocations;
      thread.last_block = block;
      return;
    }
  }
  const Caller caller = caller_here();
  if (!observe_allocate_quickly(thread, caller, block, requested)) observe_allocate(caller, block, requested);
}

// Runs the real allocation and counts its block, unless an entry inside of it did.
template <class Allocate>
[[gnu::always_inline]] inline void* allocate_counted(std::size_t requested, Allocate allocate) {
  ThreadState& thread = thread_state();
  thread.last_block = nullptr;
  void* block = allocate();
  if (block != nullptr && block != thread.last_block) count_allocated(thread, block, requested);
  return block;
}

// Whether a release must take the slow path.
[[gnu::always_inline]] inline bool is_release_slow(const void* block) noexcept {
  return live_blocks().may_contain(block) || heap().exact;
}

// The fast path of every release, before the real one.
[[gnu::always_inline]] inline void count_released(const void* block) noexcept {
  ThreadState& thread = thread_state();
  if (block == nullptr || block == thread.releasing) return;
  ++thread.small_releases;
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory == nullptr) return;
  if (const std::size_t usable = usable_bytes(block); usable < trace::kLargeBlockBytes) [[likely]] {
    thread.small_released_bytes += usable;
    change_live(directory, block, usable, LiveChange::release);
  }
}

// Before the real release where it is slow. False: a block of the bootstrap arena, which stays.
bool begin_slow_release(const void* block) noexcept;

// The same in general.
[[gnu::always_inline]] inline bool begin_release(const void* block) noexcept {
  if (is_release_slow(block)) [[unlikely]]
    return begin_slow_release(block);
  count_released(block);
  return true;
}

// Runs a real function which may call another of our entries to release the same block.
template <class Function>
[[gnu::always_inline]] inline auto release_once(const void* block, Function function) {
  class Mark {
   public:
    explicit Mark(const void* released) noexcept { thread_state().releasing = released; }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    ~Mark() { thread_state().releasing = nullptr; }
  };
  const Mark mark(block);
  return function();
}

}  // namespace whyrss::shim
