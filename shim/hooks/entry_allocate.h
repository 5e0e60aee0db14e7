// What the heap entry points share. An entry is exported under the name of the function it interposes, has a
// few lines, and leaves the work to observe_*.
//
// A block is counted by the innermost of our entries that sees it (operator new of libstdc++ calls malloc, a custom
// calloc may), with the stack of the outermost.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "shim/events/caller.h"
#include "shim/events/thread_state.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/live_blocks.h"
#include "shim/heap/liveness.h"
#include "shim/observe/exact_fast_path.h"
#include "shim/sys/raw_io.h"

#define WHYRSS_ENTRY extern "C" __attribute__((visibility("default")))

namespace whyrss::shim {

// What libc's syscall() returns for what the kernel says.
inline long libc_result(long from_kernel) noexcept {
  if (!is_raw_error(from_kernel)) return from_kernel;
  errno = static_cast<int>(-from_kernel);
  return -1;
}

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
// is taken from a smaller one would wrap it around, so that nothing was ever walked again. As it is, the gap to the
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

// Where glibc's header says how large the block is, it lies on one page, and the countdown goes on: counts it, calling
// nothing, so that the entry saves no register for it. False: nothing has happened.
[[gnu::always_inline]] inline bool is_allocation_counted(ThreadState& thread, const void* block) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  std::size_t usable = 0;
  if (directory == nullptr || !header_reports(block, usable)) [[unlikely]]
    return false;
  const std::uint64_t left = countdown(thread.left);
  if (usable >= left || !change_live_on_page(thread, directory, block, usable, LiveChange::allocate)) [[unlikely]]
    return false;
  thread.left = left - usable;
  ++thread.small_allocations;
  thread.last_block = block;
  return true;
}

// Runs the real allocation and counts its block, unless an entry inside of it did.
template <class Allocate>
[[gnu::always_inline]] inline void* allocate_counted(std::size_t requested, Allocate allocate) {
  ThreadState& thread = thread_state();
  thread.last_block = nullptr;
  void* block = allocate();
  if (block == nullptr || block == thread.last_block || is_allocation_counted(thread, block)) return block;
  const Caller caller = caller_here();
  return count_allocated(block, requested, caller.ip, caller.sp, caller.bp);
}

// Whether a release must take the slow path.
[[gnu::always_inline]] inline bool is_release_slow(const void* block) noexcept {
  return live_blocks().may_contain(block) || heap().exact;
}

// The fast path of every release that is not slow, before the real one; calls nothing, as is_allocation_counted. False:
// count_released must.
[[gnu::always_inline]] inline bool is_release_counted(const void* block) noexcept {
  ThreadState& thread = thread_state();
  if (block == nullptr || block == thread.releasing) [[unlikely]]
    return true;
  if (const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire); directory != nullptr) {
    std::size_t usable = 0;
    if (!header_reports(block, usable) || !change_live_on_page(thread, directory, block, usable, LiveChange::release))
        [[unlikely]]
      return false;
    thread.small_released_bytes += usable;
  }
  ++thread.small_releases;
  return true;
}

// The same where that takes calls.
void count_released(const void* block) noexcept;

// Before the real release where it is slow.
void begin_slow_release(const void* block) noexcept;

// Before any real release.
[[gnu::always_inline]] inline void begin_release(const void* block) noexcept {
  if (is_release_slow(block)) [[unlikely]]
    return begin_slow_release(block);
  if (!is_release_counted(block)) [[unlikely]]
    count_released(block);
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
