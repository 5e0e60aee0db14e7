// What the heap entry points share. An entry is exported under the name of the function it interposes, has a
// few lines, and leaves the work to observe_*.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/observe.h"
#include "shim/stack_capture.h"
#include "shim/thread_state.h"

#define WHYRSS_ENTRY extern "C" __attribute__((visibility("default")))

namespace whyrss::shim {

// Marks the heap entry that runs, so that an entry which the real function calls (operator new ->
// malloc) stays silent: the outermost call is the program's own. No destructor clears it when the real
// function throws; then it is recognised as left behind: either the inner call is not within the few
// frames that an allocator's operator new takes, or the slot of our return address holds another value.
class HeapCall {
 public:
  [[gnu::always_inline]] HeapCall(ThreadState& thread, const Caller& caller) noexcept : thread_(thread) {
    const auto here = reinterpret_cast<std::uintptr_t>(this);
    const bool near = thread.outer_sp > here && thread.outer_sp - here < kNestedBytes;
    nested_ = near && *thread.outer_return_slot == thread.outer_return;
    if (nested_) return;
    thread.outer_sp = here;
    thread.outer_return_slot = reinterpret_cast<const std::uintptr_t*>(caller.sp) - 1;
    thread.outer_return = caller.ip;
  }
  HeapCall(const HeapCall&) = delete;
  HeapCall& operator=(const HeapCall&) = delete;
  ~HeapCall() {
    if (!nested_) thread_.outer_sp = 0;
  }
  [[nodiscard]] bool nested() const noexcept { return nested_; }

 private:
  static constexpr std::uintptr_t kNestedBytes = 4096;
  ThreadState& thread_;
  bool nested_ = false;
};

// The fast path of every allocation: true when a block of this size is only counted. False too in a
// thread that was not entered yet.
[[gnu::always_inline]] inline bool count_if_small(std::size_t size_bytes) noexcept {
  ThreadState& thread = thread_state();
  if (size_bytes >= thread.large_limit) return false;
  ++thread.small_allocations;
  thread.small_allocated_bytes += size_bytes;
  return true;
}

// The slow path: runs the real allocation (`allocate` returns the block) and logs its result.
template <class Allocate>
[[gnu::always_inline]] inline void* allocate_observed(const Caller& caller, std::size_t size_bytes,
                                                      Allocate allocate) noexcept {
  const HeapCall call(thread_state(), caller);
  void* block = allocate();
  if (block != nullptr && !call.nested()) observe_allocate(caller, block, size_bytes);
  return block;
}

}  // namespace whyrss::shim
