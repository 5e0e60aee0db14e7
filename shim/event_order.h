// Exact mode: which compact records need a stamp of their own, so that a merge of all threads by time has the events of
// one address in the order in which they happened.
//
// One thread    Its stream says the order; one event in kEventsPerStamp is stamped for the time's sake.
// Threads       The counters of the liveness table say who was at a page last. While the counter of a block's page
//               holds what this thread left there, nobody else's block came or went there since, and the thread's
//               last stamp does, once it was read after the last change that another one made. For that
//               - every event reads its stamp, where it takes one, before it changes the counter; those of the general
//                 path change it after their record;
//               - the stamp of an event on a page that is not the thread's own waits for the loads before it
//               (`fences`):
//                 a processor may read its counter before them, as AMD's do.
//               Another thread's 65,536 allocations on the page between two events of this one would go unnoticed.
// Both          What changes the order by other means than the counters counts in g_order_changes: large blocks,
//               mappings, forks, reallocs that failed. After that, and after the reader has walked the pages, the next
//               event of every thread is stamped.
#pragma once

#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>

namespace whyrss::shim {

// Each as many events at most of a thread have the time of an earlier one.
inline constexpr std::uint32_t kEventsPerStamp = 64;

extern constinit std::atomic<std::uint32_t> g_order_changes;
// After the record of such an event; before the real call where it is stamped before that.
inline void change_order() noexcept { g_order_changes.fetch_add(1, std::memory_order_acq_rel); }

// A page as this thread left it. Per thread, zero at first.
struct OrderedPage {
  std::uint32_t* counter;
  std::uint32_t value;
  std::uint32_t since;  // `fences` when this thread came
};
inline constexpr std::size_t kOrderedPages = 32;

}  // namespace whyrss::shim
