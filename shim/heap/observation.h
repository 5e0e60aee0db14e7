// One event in the making: what the observe_* functions share.
#pragma once

#include <cerrno>
#include <cstdint>

#include "shim/events/caller.h"
#include "shim/events/guard.h"
#include "shim/events/session_state.h"
#include "shim/events/thread_state.h"
#include "shim/heap/heap_count.h"
#include "shim/stacks/stack_capture.h"
#include "shim/stacks/stack_scratch.h"

namespace whyrss::shim {

// Guards, enters the thread, keeps errno.
class Observation {
 public:
  Observation() noexcept
      : saved_errno_(errno), thread_(thread_state()), busy_(thread_), ready_(busy_.taken() && is_entered(thread_)) {}
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  ~Observation() {
    if (ready_) {
      if (thread_.small_allocations + thread_.small_releases >= kCountsPerFlush || is_much_uncounted() || thread_.ended)
        flush_counts(thread_);
      if (thread_.ended) trace::seal(thread_.lease);
    }
    errno = saved_errno_;
  }
  explicit operator bool() const noexcept { return ready_; }
  ThreadState& thread() noexcept { return thread_; }

  std::uint32_t stack(const Caller& caller) noexcept {
    if (!session().stacks_ready.load(std::memory_order_acquire) || thread_.ended) return trace::kNoStack;
    if (!ensure_scratch(thread_)) return trace::kNoStack;
    return describe_stack(caller, thread_.writer, thread_.lease, *thread_.scratch);
  }

 private:
  // Small-block counts go to the shared slot in batches, so that the slot's cache line stays quiet.
  static constexpr std::uint64_t kCountsPerFlush = 64;
  static constexpr std::uint64_t kBytesPerFlush = 256 * 1024;

  [[nodiscard]] bool is_much_uncounted() const noexcept {
    const std::uint64_t grown = thread_.small_allocated_bytes - thread_.small_released_bytes;  // or shrunk
    return grown + kBytesPerFlush > 2 * kBytesPerFlush;
  }

  int saved_errno_;
  ThreadState& thread_;
  Busy busy_;
  bool ready_;
};

}  // namespace whyrss::shim
