#include "shim/process/teardown.h"

#include <atomic>
#include <cstddef>

#include "shim/process/final_walk.h"
#include "shim/process/trim_at_end.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

constinit const ThreadState* g_main_thread = nullptr;
// Generation of the process whose first thread has ended before the others.
constinit std::atomic<std::uint64_t> g_leader_ended{0};

void leave_main_thread(void*) { tear_down_process(); }

// Libc aborts the program where there is no memory for the list node.
bool has_memory_for_node() noexcept {
  constexpr std::size_t kAtLeastBytes = 64;
  void* probe = real.malloc(kAtLeastBytes);
  real.free(probe);
  return probe != nullptr;
}

void watch() noexcept {
  if (real.__cxa_thread_atexit_impl != nullptr && has_memory_for_node())
    real.__cxa_thread_atexit_impl(leave_main_thread, nullptr, &g_main_thread);
}

}  // namespace

void watch_main_thread() noexcept {
  g_main_thread = &thread_state();
  watch();
}

void keep_watch_newest() noexcept {
  if (&thread_state() == g_main_thread) watch();
}

void tear_down_process() noexcept {
  observe_teardown(trace::Teardown::process);
  walk_and_trim_at_end();
}

void note_thread_end(const ThreadState& thread) noexcept {
  if (thread.generation == 0) return;
  const bool is_leader = thread.writer.tid == thread.writer.pid;
  if (is_leader)
    g_leader_ended.store(thread.generation, std::memory_order_relaxed);
  else if (g_leader_ended.load(std::memory_order_relaxed) != thread.generation)
    return;
  // The first thread stays, as a zombie, until all have ended.
  const std::uint64_t threads = thread_count();
  if (threads != 0 && threads <= (is_leader ? 1 : 2)) tear_down_process();
}

}  // namespace whyrss::shim
