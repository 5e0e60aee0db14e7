#include "shim/observe/allocator_stats.h"

#include <malloc.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>

#include "shim/events/caller.h"
#include "shim/events/emit.h"
#include "shim/events/process_slot.h"
#include "shim/events/session_state.h"
#include "shim/heap/heap_settings.h"
#include "shim/heap/live_sum.h"
#include "shim/heap/observation.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/stacks/unwind_walk.h"
#include "shim/sys/loaded_images.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

// mallinfo2 walks every free chunk, 95 ms for 500,000 of them. One call that took longer than this is the last at a
// peak: the program waits.
constexpr std::uint64_t kSlowNs = 20'000'000;

// Of a millisecond each, at the end.
constexpr int kMostWaits = 100;

void add_value(Text& text, std::string_view name, std::uint64_t value) noexcept {
  if (!text.view().empty()) text.add(" ");
  text.add(name).add("=").add(value);
}

// glibc. Blocks cached per thread count as in use, and so does each block's header of 8 bytes.
void ask_glibc(void* function, Text& text) noexcept {
  const struct mallinfo2 info = reinterpret_cast<struct mallinfo2 (*)()>(function)();
  add_value(text, "arena", info.arena);
  add_value(text, "hblks", info.hblks);
  add_value(text, "hblkhd", info.hblkhd);
  add_value(text, "uordblks", info.uordblks);
  add_value(text, "fordblks", info.fordblks);
  add_value(text, "keepcost", info.keepcost);
}

// jemalloc. Its figures are as old as the last epoch.
void ask_jemalloc(void* function, Text& text) noexcept {
  const auto mallctl = reinterpret_cast<int (*)(const char*, void*, std::size_t*, void*, std::size_t)>(function);
  std::uint64_t epoch = 1;
  std::size_t size = sizeof(epoch);
  if (mallctl("epoch", &epoch, &size, &epoch, sizeof(epoch)) != 0) return;
  // arenas.4096 stands for all of them (MALLCTL_ARENAS_ALL).
  for (const char* name : {"stats.allocated", "stats.active", "stats.metadata", "stats.resident", "stats.mapped",
                           "stats.retained", "stats.arenas.4096.tcache_bytes"}) {
    std::size_t value = 0;
    size = sizeof(value);
    if (mallctl(name, &value, &size, nullptr, 0) == 0) add_value(text, name, value);
  }
}

// gperftools' tcmalloc.
void ask_tcmalloc(void* function, Text& text) noexcept {
  const auto get = reinterpret_cast<int (*)(const char*, std::size_t*)>(function);
  for (const char* name : {"generic.current_allocated_bytes", "generic.heap_size", "tcmalloc.pageheap_free_bytes",
                           "tcmalloc.pageheap_unmapped_bytes", "tcmalloc.central_cache_free_bytes",
                           "tcmalloc.transfer_cache_free_bytes", "tcmalloc.thread_cache_free_bytes"}) {
    std::size_t value = 0;
    if (get(name, &value) != 0) add_value(text, name, value);
  }
}

// mimalloc: release builds do not count what is allocated.
void ask_mimalloc(void* function, Text& text) noexcept {
  using Size = std::size_t;
  const auto get = reinterpret_cast<void (*)(Size*, Size*, Size*, Size*, Size*, Size*, Size*, Size*)>(function);
  Size elapsed = 0, user = 0, system = 0, rss = 0, peak_rss = 0, commit = 0, peak_commit = 0, faults = 0;
  get(&elapsed, &user, &system, &rss, &peak_rss, &commit, &peak_commit, &faults);
  add_value(text, "current_rss", rss);
  add_value(text, "peak_rss", peak_rss);
  add_value(text, "current_commit", commit);
  add_value(text, "peak_commit", peak_commit);
  add_value(text, "page_faults", faults);
}

struct Source {
  const char* symbol;
  void (*ask)(void* function, Text& text) noexcept;
};
// mallinfo2 last: some of the others have it too.
constexpr Source kSources[] = {{"mallctl", ask_jemalloc},
                               {"MallocExtension_GetNumericProperty", ask_tcmalloc},
                               {"mi_process_info", ask_mimalloc},
                               {"mallinfo2", ask_glibc}};

// Written in the constructor only.
constinit const Source* g_source = nullptr;
constinit void* g_function = nullptr;
constinit LoadedImage g_allocator_image{};  // empty where it is libc, which has frames on every stack

constinit std::atomic<bool> g_may_be_locked{false};
constinit std::atomic<bool> g_asking{false};  // one thread at a time; it owns g_text
constinit std::atomic<bool> g_ended{false};
constinit std::atomic<bool> g_slow{false};
constinit std::atomic<std::uint32_t> g_served{0};
constinit Text g_text;
// Small blocks that the slot does not count: inherited at fork; less than 0: those of the image before an exec.
constinit std::int64_t g_other_blocks = 0;

void find_source() noexcept {
  const LoadedImage allocator = find_image(reinterpret_cast<std::uint64_t>(real.malloc));
  const LoadedImage libc = find_image(reinterpret_cast<std::uint64_t>(real._exit));
  if (allocator.start == 0) return;
  if (allocator.start != libc.start) g_allocator_image = allocator;
  for (const Source& source : kSources) {
    void* function = find_after_us(source.symbol).address;
    if (function == nullptr || find_image(reinterpret_cast<std::uint64_t>(function)).start != allocator.start) continue;
    g_function = function;
    g_source = &source;
    return;
  }
}

// Whether glibc may be asked at a moment that the program did not choose.
bool may_ask_at(trace::StatsMoment moment) noexcept {
  return g_source->ask != ask_glibc || moment == trace::StatsMoment::start || moment == trace::StatsMoment::snapshot ||
         session().settings.allocator_stats == AllocatorStats::on;
}

std::string_view name_of(trace::StatsMoment moment) noexcept {
  switch (moment) {
    case trace::StatsMoment::start:
      return "at the start";
    case trace::StatsMoment::peak:
      return "at a peak";
    case trace::StatsMoment::end:
      return "at the end";
    case trace::StatsMoment::snapshot:
      return "at a snapshot";
  }
  return "";
}

void note_left_out(ThreadState& thread, trace::StatsMoment moment, const char* why) noexcept {
  g_text.clear();
  g_text.add("the allocator's own counters were not read ").add(name_of(moment)).add(": ").add(why);
  emit_text(thread, trace::RecordKind::note, 0, g_text.view());
}

// Small blocks made less those released since the process's slot was taken, as far as threads have reported them.
std::int64_t small_blocks(const ThreadState& thread) noexcept {
  const trace::ProcessSlot* slot = slot_of(thread);
  if (slot == nullptr) return 0;
  const std::uint64_t made = slot->small_allocations.load(std::memory_order_relaxed) + thread.small_allocations;
  const std::uint64_t gone = slot->small_releases.load(std::memory_order_relaxed) + thread.small_releases;
  return static_cast<std::int64_t>(made - gone);
}

// What we count at the same moment; the prefix marks it as ours.
void add_own_count(const ThreadState& thread) noexcept {
  const std::int64_t bytes = sum_live_bytes();
  if (bytes < 0) return;
  const std::int64_t blocks =
      g_other_blocks + small_blocks(thread) + g_large_blocks.count.load(std::memory_order_relaxed);
  add_value(g_text, "whyrss.live_bytes", static_cast<std::uint64_t>(bytes));
  add_value(g_text, "whyrss.live_blocks", static_cast<std::uint64_t>(std::max<std::int64_t>(blocks, 0)));
}

void call_allocator(ThreadState& thread) noexcept {
  const int saved_errno = errno;
  const std::uintptr_t busy_sp = thread.busy_sp;
  thread.busy_sp = 0;
  const std::uint64_t before_ns = now_ns();
  g_source->ask(g_function, g_text);
  const std::uint64_t took_ns = now_ns() - before_ns;
  thread.busy_sp = busy_sp;
  errno = saved_errno;
  if (took_ns > kSlowNs) g_slow.store(true, std::memory_order_relaxed);
}

// At the end a thread that asks is waited for. A peak or a snapshot is known from that thread.
bool begin_asking(trace::StatsMoment moment) noexcept {
  const timespec step{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int left = moment == trace::StatsMoment::end ? kMostWaits : 0;; --left) {
    if (!g_asking.exchange(true, std::memory_order_acquire)) return true;
    if (left == 0) return false;
    own_syscall(SYS_nanosleep, as_long(&step), 0);
  }
}

// False: left out, with the reason in a note unless it can be tried again later.
bool ask(ThreadState& thread, trace::StatsMoment moment, const Caller& here) noexcept {
  if (!begin_asking(moment)) {
    if (moment == trace::StatsMoment::end)
      emit_text(thread, trace::RecordKind::note, 0,
                "the allocator's own counters were not read at the end: another thread was at it");
    return false;
  }
  // The loader's own start has no unwind table; nothing is interrupted there.
  const char* why_not = moment == trace::StatsMoment::start
                            ? nullptr
                            : danger_of_call(thread, here, g_allocator_image.start, g_allocator_image.end);
  g_text.clear();
  if (why_not == nullptr) {
    call_allocator(thread);
    if (!g_text.view().empty()) {
      add_own_count(thread);
      emit_text(thread, trace::RecordKind::allocator_stats, static_cast<std::uint32_t>(moment), g_text.view());
    }
  } else if (moment != trace::StatsMoment::peak) {
    note_left_out(thread, moment, why_not);
  }
  g_asking.store(false, std::memory_order_release);
  return why_not == nullptr;
}

}  // namespace

const char* danger_of_call(ThreadState& thread, const Caller& here, std::uint64_t start, std::uint64_t end) noexcept {
  if (g_may_be_locked.load(std::memory_order_relaxed)) return "a child by clone() may hold locks of its parent";
  if (thread.ended || !ensure_scratch(thread)) return "there was no memory to read the stack";
  const NativeWalk walk = walk_native(here, *thread.scratch);
  if (walk.truncated || walk.incomplete) return "the stack was not known to its end";
  if (has_signal_frame(*thread.scratch)) return "a signal handler may have interrupted the allocator";
  const StackMemo& memo = thread.scratch->memo;
  for (std::size_t i = memo.first(); i < StackMemo::kEnd; ++i)
    if (memo.frame(i).ip - start < end - start) return "the allocator itself was at work";
  return nullptr;
}

void start_allocator_stats(ThreadState& thread) noexcept {
  const Settings& settings = session().settings;
  if (settings.allocator_stats == AllocatorStats::off) return;
  if (settings.liveness_off && !heap().exact) return;  // nothing to compare them with
  find_source();
  if (g_source == nullptr) return;
  if (const trace::ProcessSlot* slot = slot_of(thread); slot != nullptr)  // of the image before an exec
    g_served.store(slot->stats_request.load(std::memory_order_relaxed), std::memory_order_relaxed);
  g_other_blocks = -small_blocks(thread);
  ask(thread, trace::StatsMoment::start, caller_here());
}

[[gnu::noinline]] void report_allocator_stats(ThreadState& thread, trace::StatsMoment moment) noexcept {
  if (g_source == nullptr || !may_ask_at(moment)) return;
  if (trace::is_kernel_closed()) return;  // it may wait for a lock, or map memory
  if (moment == trace::StatsMoment::end && g_ended.exchange(true, std::memory_order_relaxed)) return;
  ask(thread, moment, caller_here());
}

void serve_stats_request(ThreadState& thread) noexcept {
  const trace::ProcessSlot* slot = slot_of(thread);
  if (g_source == nullptr || slot == nullptr || !may_ask_at(trace::StatsMoment::peak)) return;
  if (trace::is_kernel_closed() || g_slow.load(std::memory_order_relaxed)) return;
  const std::uint32_t request = slot->stats_request.load(std::memory_order_relaxed);
  if (request == g_served.load(std::memory_order_relaxed)) return;
  if (ask(thread, trace::StatsMoment::peak, caller_here())) g_served.store(request, std::memory_order_relaxed);
}

bool allocator_may_be_locked() noexcept { return g_may_be_locked.load(std::memory_order_relaxed); }

void set_allocator_may_be_locked(bool may_be) noexcept { g_may_be_locked.store(may_be, std::memory_order_relaxed); }

void reset_allocator_stats(const ThreadState& thread) noexcept {
  g_other_blocks += small_blocks(thread);
  g_asking.store(false, std::memory_order_relaxed);
  g_ended.store(false, std::memory_order_relaxed);
  g_served.store(0, std::memory_order_relaxed);
}

}  // namespace whyrss::shim
