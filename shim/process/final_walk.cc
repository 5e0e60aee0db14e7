#include "shim/process/final_walk.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>

#include "shim/events/emit.h"
#include "shim/events/process_slot.h"
#include "shim/events/session_state.h"
#include "shim/events/unmoved_bytes.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/heap_settings.h"
#include "shim/heap/observation.h"
#include "shim/observe/allocator_stats.h"
#include "shim/stacks/python_interpreter.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/readable_page.h"

namespace whyrss::shim {
namespace {

// How long a process waits for a walk of its pages: a few ms as a rule, longer only where it is large or the machine so
// busy that the reader hardly gets its turn (a virtual machine may be held for 50 ms at a time). It waits until
// kWalkWaitNs after the reader's last sign of life, plus what a walk of 4 KiB pages and their sums take with cold
// caches, and never longer than kLongestWalkWaitNs.
constexpr std::uint64_t kWalkWaitNs = 500'000'000;
constexpr std::uint64_t kWalkWaitNsPerPage = 64;
constexpr std::uint64_t kLongestWalkWaitNs = 2'000'000'000;
// A process that waits asks this often whether the reader has died.
constexpr std::uint64_t kSeesDeathNs = 20'000'000;
// Smaller moves of the resident set are not worth a last walk: 1 MiB. A process of 16 MiB and more has lived long
// enough to wait for one: from 256 KiB, and always where it was not walked for a while.
constexpr std::uint64_t kWorthWalkingPages = 256;
constexpr std::uint64_t kLargePages = 4096;
constexpr std::uint64_t kWorthWalkingLargePages = 64;
constexpr std::uint32_t kLongSinceMs = 20;
constexpr std::uint32_t kFirstOfNamespace = 1;

// Waits `limit_ns` for it, and up to `longest_ns` where the reader has beaten within the last `limit_ns`.
bool walk_now(ThreadState& thread, std::uint64_t limit_ns, std::uint64_t longest_ns,
              bool also_before_reader = false) noexcept {
  trace::ProcessSlot* slot = slot_of(thread);
  const trace::PoolHeader* header = thread.writer.pool.header;
  if (slot == nullptr || trace::is_kernel_closed()) return false;
  const std::uint64_t beat_ns = header->reader_beat_ns.load(std::memory_order_relaxed);
  const bool has_begun = header->reader_pid.load(std::memory_order_relaxed) != 0 && beat_ns != 0;
  if (has_begun ? now_ns() - beat_ns > trace::kReaderGoneNs : !also_before_reader) return false;
  if (trace::is_reader_dead(*header)) return false;
  const std::uint32_t wanted = slot->walk_request.fetch_add(1, std::memory_order_release) + 1;
  trace::ring_doorbell(thread.writer.pool);
  const std::uint64_t begun_ns = now_ns();
  while (true) {
    const std::uint32_t done = slot->walk_done.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(done - wanted) >= 0) return true;
    const std::uint64_t now = now_ns();
    const std::uint64_t alive_ns = std::max(begun_ns, header->reader_beat_ns.load(std::memory_order_relaxed));
    const std::uint64_t deadline = std::min(alive_ns + limit_ns, begun_ns + longest_ns);
    if (now >= deadline || trace::is_reader_dead(*header)) {
      // Taken back: a walk that comes later is not the one that was asked for. Not while another thread waits for an
      // earlier one, which would be taken back too.
      std::uint32_t seen = wanted - 1;
      slot->walk_done.compare_exchange_strong(seen, wanted);
      return static_cast<std::int32_t>(seen - wanted) >= 0;
    }
    const timespec wait{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(deadline - now, kSeesDeathNs))};
    own_syscall(SYS_futex, as_long(&slot->walk_done), FUTEX_WAIT, done, as_long(&wait));
  }
}

// Generations of the process whose interpreter, or that itself, has begun its teardown; a forked child has another.
constinit std::atomic<std::uint64_t> g_runtime_torn_down{0}, g_torn_down{0};
constinit std::atomic<std::uint32_t> g_runtime_ms{0};  // when the interpreter last reported it
// Generation of the process that has reported the end of a script, and when it did so last.
constinit std::atomic<std::uint64_t> g_script_ended{0};
constinit std::atomic<std::uint32_t> g_script_ms{0};
// The same of one that has waited in vain for its last walk, and until when.
constinit std::atomic<std::uint64_t> g_walk_missed{0};
constinit std::atomic<std::uint32_t> g_missed_ms{0};
constexpr std::uint32_t kWaitedMs = 100;
constexpr std::uint32_t kScriptGapMs = 1000;
// A program that ends later than that has outlived its interpreter.
constexpr std::uint32_t kOutlivesMs = 2000;

// Whether the last walk was taken as the interpreter began to take itself down, and nothing was done since.
bool is_runtime_down(const ThreadState& thread) noexcept {
  return g_runtime_torn_down.load(std::memory_order_relaxed) == thread.generation &&
         now_ms() - g_runtime_ms.load(std::memory_order_relaxed) < kOutlivesMs;
}

// Since the last walk, by more than `limit_pages`.
bool has_moved(const trace::ProcessSlot& slot, std::uint64_t pages, std::uint64_t limit_pages) noexcept {
  const std::uint64_t walked = slot.walked_rss_pages.load(std::memory_order_relaxed);
  // Copies of inherited pages move no RSS, but each is a fault. What was freed, and is kept by the allocator, moves
  // neither.
  const auto faults = static_cast<std::int32_t>(static_cast<std::uint32_t>(minor_faults()) -
                                                slot.walked_minor_faults.load(std::memory_order_relaxed));
  const auto live_kib =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(slot.live_bytes.load(std::memory_order_relaxed) / 1024) -
                                slot.walked_live_kib.load(std::memory_order_relaxed));
  return (pages > walked ? pages - walked : walked - pages) > limit_pages ||
         faults > static_cast<std::int32_t>(limit_pages) ||
         std::abs(live_kib) > static_cast<std::int32_t>(limit_pages * kPageBytes / 1024) ||
         unmoved_since_walk(slot) / kPageBytes > limit_pages ||
         std::abs(objects_since_walk(slot)) > static_cast<std::int64_t>(limit_pages * kPageBytes);
}

// Whether a walk of a process that is about to leave would show something new.
bool is_worth_final_walk(const trace::ProcessSlot& slot, std::uint64_t pages) noexcept {
  // Other threads may have freed more than they have reported yet.
  const std::uint32_t since_ms = now_ms() - slot.walked_ms.load();
  const bool is_large = pages >= kLargePages;
  const std::uint64_t limit_pages = is_large ? kWorthWalkingLargePages : kWorthWalkingPages;
  // Exact mode logs objects of CPython, and keeps no sum of them.
  const bool has_objects = heap().exact && g_python.usable.load(std::memory_order_relaxed);
  const bool is_size_unknown = pages == 0;  // no /proc here
  return is_size_unknown || has_objects || has_moved(slot, pages, limit_pages) ||
         lazily_freed_bytes() / kPageBytes > limit_pages ||
         (is_large && (since_ms >= kLongSinceMs || child_ended_since_walk(slot)));
}

// The last walk of it. An end of several steps waits in vain once.
void final_walk(ThreadState& thread, std::uint64_t pages) noexcept {
  const std::uint32_t begun_ms = now_ms();
  if (g_walk_missed.load(std::memory_order_relaxed) == thread.generation &&
      begun_ms - g_missed_ms.load(std::memory_order_relaxed) < kOutlivesMs)
    return;
  if (walk_now(thread, kWalkWaitNs + pages * kWalkWaitNsPerPage, kLongestWalkWaitNs)) return;
  slot_of(thread)->walks_missed.fetch_add(1, std::memory_order_relaxed);
  if (now_ms() - begun_ms < kWaitedMs) return;  // the reader was not there, or not yet
  g_missed_ms.store(now_ms(), std::memory_order_relaxed);
  g_walk_missed.store(thread.generation, std::memory_order_relaxed);
}

// An exit or a teardown, with its status.
void emit_end(ThreadState& thread, trace::RecordKind kind, std::int32_t status) noexcept {
  emit(thread, kind,
       trace::ProcessRecord{.header = {},
                            .pid = thread.writer.pid,
                            .status = status,
                            .stack_id = trace::kNoStack,
                            .tid = thread.writer.tid});
}

void tear_down(ThreadState& thread, std::int32_t what) noexcept {
  flush_counts(thread);
  const trace::ProcessSlot* slot = trace::is_kernel_closed() ? nullptr : slot_of(thread);
  if (what != trace::Teardown::script && !trace::is_kernel_closed())
    report_allocator_stats(thread, trace::StatsMoment::end);
  const std::uint64_t pages = slot == nullptr ? 0 : resident_pages();
  const bool moved = slot != nullptr && is_worth_final_walk(*slot, pages);
  if (slot != nullptr && !moved) what |= trace::Teardown::unmoved;
  emit_end(thread, trace::RecordKind::teardown, what);
  if (moved) final_walk(thread, pages);
}

void observe_end_of_script(ThreadState& thread) noexcept {
  const std::uint32_t now = now_ms();
  const bool again = g_script_ended.exchange(thread.generation) == thread.generation;
  if (again && now - g_script_ms.load(std::memory_order_relaxed) < kScriptGapMs) {
    // Its parts may be freed one by one; but if something was done since, it was another script.
    const trace::ProcessSlot* slot = slot_of(thread);
    if (slot == nullptr || has_moved(*slot, resident_pages(), kWorthWalkingPages))
      g_script_ended.store(0, std::memory_order_relaxed);
    return;
  }
  g_script_ms.store(now, std::memory_order_relaxed);
  tear_down(thread, trace::Teardown::script);
}

// Whether the end of the interpreter began with the end of its last script.
bool has_script_ended(const ThreadState& thread) noexcept {
  return g_script_ended.load(std::memory_order_relaxed) == thread.generation &&
         now_ms() - g_script_ms.load(std::memory_order_relaxed) < kOutlivesMs;
}

}  // namespace

void observe_exit(int status) noexcept {
  static constinit std::atomic<std::uint64_t> recorded{0};  // generation of the process that has said it
  Observation event;
  if (!event || is_vfork_child()) return;
  ThreadState& thread = event.thread();
  if (recorded.exchange(thread.generation) == thread.generation) return;
  flush_counts(thread);
  if (g_torn_down.exchange(thread.generation) != thread.generation && !is_runtime_down(thread))
    tear_down(thread, trace::Teardown::process);
  emit_end(thread, trace::RecordKind::exit, status);
  trace::seal(thread.lease);
  trace::ring_doorbell(thread.writer.pool);
  // The collector may be in the namespace that ends with this process: it has stored all when the walk is done.
  if (thread.writer.pid == kFirstOfNamespace && slot_of(thread) != nullptr) final_walk(thread, resident_pages());
}

void observe_teardown(std::int32_t what) noexcept {
  Observation event;
  if (!event || is_vfork_child()) return;
  ThreadState& thread = event.thread();
  if (what == trace::Teardown::script) return observe_end_of_script(thread);
  const bool of_runtime = what == trace::Teardown::runtime;
  const bool was_down = is_runtime_down(thread);
  if (of_runtime) g_runtime_ms.store(now_ms(), std::memory_order_relaxed);
  if (of_runtime && has_script_ended(thread)) what |= trace::Teardown::script;
  std::atomic<std::uint64_t>& done = of_runtime ? g_runtime_torn_down : g_torn_down;
  if (done.exchange(thread.generation) != thread.generation && !was_down) tear_down(thread, what);
}

bool observe_interpreter() noexcept {
  if (g_runtime_torn_down.load(std::memory_order_relaxed) == 0) return false;
  Observation event;
  if (!event || is_vfork_child()) return false;
  ThreadState& thread = event.thread();
  if (g_runtime_torn_down.exchange(0) != thread.generation) return false;
  g_script_ended.store(0, std::memory_order_relaxed);
  emit_end(thread, trace::RecordKind::teardown, trace::Teardown::undone);
  return true;
}

bool request_walk(std::uint64_t longest_ns) noexcept {
  Observation event;
  if (!event || is_vfork_child()) return false;
  trace::ProcessSlot* slot = slot_of(event.thread());
  if (slot == nullptr) return false;
  // A program that has just begun may be ahead of its collector.
  const std::uint64_t limit_ns = std::max(longest_ns, kWalkWaitNs + resident_pages() * kWalkWaitNsPerPage);
  if (walk_now(event.thread(), limit_ns, std::max(longest_ns, kLongestWalkWaitNs), true)) return true;
  if (!trace::is_kernel_closed()) slot->walks_missed.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void last_walk_before_filter(ThreadState& thread) noexcept {
  flush_counts(thread);
  const trace::ProcessSlot* slot = slot_of(thread);
  const std::uint64_t pages = resident_pages();
  if (slot != nullptr && is_worth_final_walk(*slot, pages)) final_walk(thread, pages);
  trace::ring_doorbell(thread.writer.pool);
}

}  // namespace whyrss::shim
