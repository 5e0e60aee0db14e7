// Exact mode: which compact records need a stamp of their own, so that a merge of all threads by time has the events of
// one address in the order in which they happened.
//
// One thread    Its stream says the order; one event in kEventsPerStamp is stamped for the time's sake.
// Threads       The counters of the liveness table say which thread changed a page last. While the counter of a block's
//               page holds what this thread left there, no other thread made or freed a block there since, and this
//               thread's last stamp will do, once it was read after the last change by another thread. For that
//               - every event reads its stamp, where it takes one, before it changes the counter; those of the general
//                 path change it after their record;
//               - the stamp of an event on a page that is not the thread's own waits for the loads before it
//                 (`fences`): a processor may read its counter before them, as AMD's do.
//               Another thread's 65,536 allocations on the page between two events of this one would go unnoticed.
//               No counter covers the pages of CPython's allocator. A thread that makes or frees an object there holds
//               the GIL: its first event after one of another thread is stamped, those that follow are not.
//               (Interpreters with a GIL of their own have arenas of their own.)
// Both          What changes the order by other means than the counters counts in g_order_changes: large blocks,
//               mappings, forks, reallocs that failed. After that, and after the reader has walked the pages, the next
//               event of every thread is stamped.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/sys/cheap_atomics.h"

namespace whyrss::shim {

// Each as many events at most of a thread have the time of an earlier one.
inline constexpr std::uint32_t kEventsPerStamp = 64;

extern constinit std::atomic<std::uint32_t> g_order_changes;
// After the record of such an event; before the real call where it is stamped before that.
inline void change_order() noexcept { add_to(g_order_changes, 1); }

// The thread whose object came or went last.
extern constinit std::atomic<const void*> g_object_thread;
// True: another thread's did. Before each such event.
inline bool takes_objects_over(const void* thread) noexcept {
  if (g_object_thread.load(std::memory_order_relaxed) == thread) return false;
  g_object_thread.store(thread, std::memory_order_relaxed);
  return true;
}

// A page as this thread left it. Per thread, zero at first.
struct OrderedPage {
  std::uint32_t* counter;
  std::uint32_t value;
  std::uint32_t since;  // `fences` when this thread came
};
inline constexpr std::size_t kOrderedPages = 32;

}  // namespace whyrss::shim
