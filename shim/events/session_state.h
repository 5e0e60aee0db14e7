// The only global state of the shim: whether tracing is on, the pool, the process slot.
//
// Life       unknown -> (first hook with an environment, or the constructor) -> live or off.
//            `off` is for good in this image; every hook then passes through.
// Fork       The control page is MADV_WIPEONFORK: after a fork, by whatever call, the child finds it zero at its next
//            slow path and attaches as a process of its own (attach_forked_child).
//            What the child copied of its parent (lease, counters) is dropped, never sealed.
//            vfork and posix_spawn children share our memory and our page: they count as the parent.
// Failure    one line on stderr, then off. Never fatal.
// Threads    enter_thread: any thread, async-signal-safe once live. The rest: see each.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/events/settings.h"
#include "shim/events/thread_state.h"
#include "shim/trace/pool.h"

namespace whyrss::shim {

// On the WIPEONFORK page.
struct Control {
  std::atomic<std::uint64_t> generation;  // 0: not attached (yet, or a fresh fork child)
  std::atomic<std::uint32_t> attaching;
  std::atomic<std::uint32_t> has_uffd_handoff;  // or it was tried (write_tracking.h)
  trace::Writer writer;                         // tid 0; threads copy it
};

enum class Phase : std::uint32_t { unknown, starting, live, off };

struct Session {
  std::atomic<Phase> phase{Phase::unknown};
  std::atomic<bool> stacks_ready{false};  // describe_stack may be called
  Control* control = nullptr;
  trace::PoolView pool{};
  Settings settings{};
  trace::Allocator allocator = trace::Allocator::other;
  const char* allocator_path = "";
  std::uint64_t attach_count = 0;
  std::uint64_t seed = 0;               // of the threads' sampling; another one in each process
  std::atomic<std::uint32_t> forks{0};  // begun so far: a child's copy is its number
  std::uint32_t thread_key = 0;
  bool has_thread_key = false;
};

extern constinit Session g_session;
inline Session& session() noexcept { return g_session; }

// The gate of every slow path; the caller holds Busy. True: events of this thread can be written. In session.cc, which
// attaches.
bool enter_thread(ThreadState& thread) noexcept;

// The same, quick for a thread that has been entered.
[[gnu::always_inline]] inline bool is_entered(ThreadState& thread) noexcept {
  const Session& self = session();
  const bool entered = self.phase.load(std::memory_order_acquire) == Phase::live && thread.generation != 0 &&
                       self.control->generation.load(std::memory_order_acquire) == thread.generation;
  return entered || enter_thread(thread);
}

// True when this process is not the one that attached: a vfork child, which runs in its parent's
// memory and must leave the parent's stream alone. Costs a system call.
bool is_vfork_child() noexcept;

// The path of this library as the loader knows it; empty when unknown.
const char* own_path() noexcept;

}  // namespace whyrss::shim
