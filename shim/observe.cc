#include "shim/observe.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "shim/allocator_stats.h"
#include "shim/attach.h"
#include "shim/emit.h"
#include "shim/event_order.h"
#include "shim/liveness.h"
#include "shim/observation.h"
#include "shim/own_memory.h"
#include "shim/python_memory.h"
#include "shim/raw_io.h"
#include "shim/readable_page.h"
#include "shim/session.h"
#include "shim/touch_event.h"
#include "shim/write_tracking.h"

namespace whyrss::shim {
namespace {

// How long a process waits for a look at its pages: a few ms as a rule, longer only where it is large or the machine so
// busy that the reader hardly gets its turn (a virtual machine may be held for 50 ms at a time). Until so long after
// the reader's last sign of life, with what a walk of 4 KiB pages and a look at their sums take with cold caches;
// nobody waits longer than the last.
constexpr std::uint64_t kLookNs = 500'000'000;
constexpr std::uint64_t kLookNsPerPage = 64;
constexpr std::uint64_t kLongestLookNs = 2'000'000'000;
// A process that waits asks this often whether the reader has died.
constexpr std::uint64_t kSeesDeathNs = 20'000'000;
// Moves of the resident set below this are not worth a last look: 1 MiB.
constexpr std::uint64_t kWorthLookingPages = 256;
// Of a process of 16 MiB and more that was not looked at for a while, the last look is always taken.
constexpr std::uint64_t kWorthLookingAgainPages = 4096;
constexpr std::uint32_t kLongSinceMs = 20;

std::uint64_t number_of(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

// Waits `limit_ns` for it, and up to `longest_ns` where the reader has beaten within the last `limit_ns`.
bool look_now(ThreadState& thread, std::uint64_t limit_ns, std::uint64_t longest_ns,
              bool also_before_reader = false) noexcept {
  trace::ProcessSlot* slot = slot_of(thread);
  const trace::PoolHeader* header = thread.writer.pool.header;
  if (slot == nullptr || trace::is_kernel_closed()) return false;
  const std::uint64_t beat_ns = header->reader_beat_ns.load(std::memory_order_relaxed);
  const bool has_begun = header->reader_pid.load(std::memory_order_relaxed) != 0 && beat_ns != 0;
  if (has_begun ? now_ns() - beat_ns > trace::kReaderGoneNs : !also_before_reader) return false;
  if (trace::is_reader_dead(*header)) return false;
  const std::uint32_t wanted = slot->look_request.fetch_add(1, std::memory_order_release) + 1;
  trace::ring_doorbell(thread.writer.pool);
  const std::uint64_t begun_ns = now_ns();
  while (true) {
    const std::uint32_t done = slot->look_done.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(done - wanted) >= 0) return true;
    const std::uint64_t now = now_ns();
    const std::uint64_t alive_ns = std::max(begun_ns, header->reader_beat_ns.load(std::memory_order_relaxed));
    const std::uint64_t deadline = std::min(alive_ns + limit_ns, begun_ns + longest_ns);
    if (now >= deadline || trace::is_reader_dead(*header)) {
      // Taken back: a look that comes later is not the one that was asked for. Not while another thread waits for an
      // earlier one, which would be taken back too.
      std::uint32_t seen = wanted - 1;
      slot->look_done.compare_exchange_strong(seen, wanted);
      return static_cast<std::int32_t>(seen - wanted) >= 0;
    }
    const timespec wait{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(deadline - now, kSeesDeathNs))};
    own_syscall(SYS_futex, as_long(&slot->look_done), FUTEX_WAIT, done, as_long(&wait));
  }
}

// Generations of the process whose interpreter, or that itself, has begun its teardown; a forked child has another.
constinit std::atomic<std::uint64_t> g_runtime_torn_down{0}, g_torn_down{0};
constinit std::atomic<std::uint32_t> g_runtime_ms{0};  // when the interpreter was seen at it last
// Generation of the process that has told the end of a script, and when it did so last.
constinit std::atomic<std::uint64_t> g_script_ended{0};
constinit std::atomic<std::uint32_t> g_script_ms{0};
constinit std::atomic<bool> g_script_look_missed{false};
constexpr std::uint32_t kScriptGapMs = 1000;
// A program that ends later than that has outlived its interpreter.
constexpr std::uint32_t kOutlivesMs = 2000;

// What was given up with MADV_FREE, or locked, since the last look began: it moves neither RSS nor faults. Threads may
// miscount each other's.
constinit std::atomic<std::uint64_t> g_unmoved_bytes{0};
constinit std::atomic<std::uint32_t> g_unmoved_ms{0};  // the last time, as walked_ms

std::uint32_t now_ms() noexcept { return static_cast<std::uint32_t>(now_ns() / 1'000'000); }

// Whether the last look was taken as the interpreter began to take itself down, and nothing was done since.
bool is_runtime_down(const ThreadState& thread) noexcept {
  return g_runtime_torn_down.load(std::memory_order_relaxed) == thread.generation &&
         now_ms() - g_runtime_ms.load(std::memory_order_relaxed) < kOutlivesMs;
}

std::uint64_t unmoved_unseen(const trace::ProcessSlot& slot) noexcept {
  const std::uint32_t since_walk_ms = g_unmoved_ms.load(std::memory_order_relaxed) - slot.walked_ms.load();
  return static_cast<std::int32_t>(since_walk_ms) < 0 ? 0 : g_unmoved_bytes.load(std::memory_order_relaxed);
}

void note_unmoved(ThreadState& thread, std::size_t size_bytes) noexcept {
  const trace::ProcessSlot* slot = slot_of(thread);
  if (slot == nullptr) return;
  g_unmoved_bytes.store(unmoved_unseen(*slot) + size_bytes, std::memory_order_relaxed);
  g_unmoved_ms.store(now_ms(), std::memory_order_relaxed);
}

// Since the last look.
bool has_moved(const trace::ProcessSlot& slot, std::uint64_t pages) noexcept {
  const std::uint64_t walked = slot.walked_rss_pages.load(std::memory_order_relaxed);
  // Copies of inherited pages move no RSS, but each is a fault. What was freed, and is kept by the allocator, moves
  // neither.
  const auto faults = static_cast<std::int32_t>(static_cast<std::uint32_t>(minor_faults()) -
                                                slot.walked_minor_faults.load(std::memory_order_relaxed));
  const auto live_kib =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(slot.live_bytes.load(std::memory_order_relaxed) / 1024) -
                                slot.walked_live_kib.load(std::memory_order_relaxed));
  return (pages > walked ? pages - walked : walked - pages) > kWorthLookingPages ||
         faults > static_cast<std::int32_t>(kWorthLookingPages) ||
         std::abs(live_kib) > static_cast<std::int32_t>(kWorthLookingPages * kPageBytes / 1024) ||
         unmoved_unseen(slot) / kPageBytes > kWorthLookingPages;
}

// Whether a look at a process that is about to leave would show something new.
bool is_worth_last_look(const trace::ProcessSlot& slot, std::uint64_t pages) noexcept {
  // Other threads may have freed more than they have told yet.
  const std::uint32_t since_ms = now_ms() - slot.walked_ms.load();
  return has_moved(slot, pages) || (pages >= kWorthLookingAgainPages && since_ms >= kLongSinceMs);
}

// The last look at it; false: it did not come.
bool last_look(ThreadState& thread, std::uint64_t pages) noexcept {
  if (look_now(thread, kLookNs + pages * kLookNsPerPage, kLongestLookNs)) return true;
  slot_of(thread)->looks_missed.fetch_add(1, std::memory_order_relaxed);
  return false;
}

// False: the look that it asked for did not come.
bool tear_down(ThreadState& thread, std::int32_t what) noexcept {
  flush_counts(thread);
  const trace::ProcessSlot* slot = trace::is_kernel_closed() ? nullptr : slot_of(thread);
  if (what != trace::Teardown::script && !trace::is_kernel_closed())
    tell_allocator_stats(thread, trace::StatsMoment::end);
  const std::uint64_t pages = slot == nullptr ? 0 : resident_pages();
  const bool moved = slot != nullptr && is_worth_last_look(*slot, pages);
  if (slot != nullptr && !moved) what |= trace::Teardown::unmoved;
  emit(thread, trace::RecordKind::teardown,
       trace::ProcessRecord{.header = {},
                            .pid = thread.writer.pid,
                            .status = what,
                            .stack_id = trace::kNoStack,
                            .tid = thread.writer.tid});
  if (!moved) return true;
  // Nobody waits in vain twice.
  constexpr std::int32_t kSecondStep = trace::Teardown::runtime | trace::Teardown::script;
  const bool has_waited = (what & kSecondStep) == kSecondStep && g_script_look_missed.load(std::memory_order_relaxed);
  return !has_waited && last_look(thread, pages);
}

void observe_end_of_script(ThreadState& thread) noexcept {
  const std::uint32_t now = now_ms();
  const bool again = g_script_ended.exchange(thread.generation) == thread.generation;
  if (again && now - g_script_ms.load(std::memory_order_relaxed) < kScriptGapMs) {
    // Its parts may be freed one by one; but if something was done since, it was another script.
    const trace::ProcessSlot* slot = slot_of(thread);
    if (slot == nullptr || has_moved(*slot, resident_pages())) g_script_ended.store(0, std::memory_order_relaxed);
    return;
  }
  g_script_ms.store(now, std::memory_order_relaxed);
  g_script_look_missed.store(!tear_down(thread, trace::Teardown::script), std::memory_order_relaxed);
}

// Whether the end of the interpreter began with the end of its last script.
bool has_script_ended(const ThreadState& thread) noexcept {
  return g_script_ended.load(std::memory_order_relaxed) == thread.generation &&
         now_ms() - g_script_ms.load(std::memory_order_relaxed) < kOutlivesMs;
}

void note_untraced_child(ThreadState& thread) noexcept {
  static constinit std::atomic<bool> noted{false};
  if (!noted.exchange(true, std::memory_order_relaxed))
    emit_note(thread, "children forked since the program's seccomp filter are not traced inside");
}

// Of an alternate signal stack of the program: a capture needs about half of this.
constexpr std::uintptr_t kCaptureRoomBytes = 8 * 1024;

// On an alternate signal stack, if this thread is on one.
bool has_room_for_stack() noexcept {
  stack_t now{};
  if (is_raw_error(own_syscall(SYS_sigaltstack, 0, as_long(&now)))) return !trace::is_kernel_closed();
  if ((now.ss_flags & SS_ONSTACK) == 0) return true;
  return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - number_of(now.ss_sp) >= kCaptureRoomBytes;
}

}  // namespace

void observe_map(const Caller& caller, const Mapping& mapping) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  const bool is_arena = is_first_python_arena(event.thread(), caller, mapping);
  emit(event.thread(), trace::RecordKind::map,
       trace::MapRecord{.header = {},
                        .address = number_of(mapping.address),
                        .size_bytes = mapping.size_bytes,
                        .file_offset = mapping.file_offset,
                        .prot = static_cast<std::uint32_t>(mapping.prot),
                        .flags = static_cast<std::uint32_t>(mapping.flags),
                        .fd = mapping.fd,
                        .origin = is_arena ? trace::MapOrigin::pymalloc : event.thread().map_origin,
                        .stack_id = stack_id,
                        .tid = event.thread().writer.tid});
  change_order();
}

void observe_locked(std::size_t size_bytes) noexcept {
  Observation event;
  if (event) note_unmoved(event.thread(), size_bytes);
}

void observe_range(const Caller& caller, trace::RecordKind kind, const void* address, std::size_t size_bytes,
                   std::int64_t argument) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  if (kind == trace::RecordKind::advise && argument == MADV_FREE) note_unmoved(event.thread(), size_bytes);
  emit(event.thread(), kind,
       trace::RangeRecord{.header = {},
                          .address = number_of(address),
                          .size_bytes = size_bytes,
                          .argument = argument,
                          .stack_id = stack_id,
                          .tid = event.thread().writer.tid});
  change_order();
}

void observe_remap(const Caller& caller, const Mapping& before, const Mapping& after) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  emit(event.thread(), trace::RecordKind::remap,
       trace::RemapRecord{.header = {},
                          .old_address = number_of(before.address),
                          .old_size_bytes = before.size_bytes,
                          .new_address = number_of(after.address),
                          .new_size_bytes = after.size_bytes,
                          .flags = static_cast<std::uint32_t>(after.flags),
                          .stack_id = stack_id,
                          .tid = event.thread().writer.tid,
                          .reserved = 0});
  change_order();
}

void observe_kernel_faults(const Caller& caller, const void* address, std::size_t size_bytes, std::uint32_t faults,
                           std::uint32_t weight_calls) noexcept {
  Observation event;
  if (!event) return;
  // read() may be called in a handler, whose stack may have room for its frame and little more.
  const std::uint32_t stack_id = has_room_for_stack() ? event.stack(caller) : trace::kNoStack;
  emit(event.thread(), trace::RecordKind::kernel_faults,
       trace::KernelFaultsRecord{.header = {},
                                 .address = number_of(address),
                                 .size_bytes = size_bytes,
                                 .faults = faults,
                                 .weight_calls = weight_calls,
                                 .stack_id = stack_id,
                                 .tid = event.thread().writer.tid});
}

void observe_child(const Caller& caller, trace::RecordKind kind, std::uint32_t pid) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  if (kind == trace::RecordKind::fork && trace::is_kernel_closed()) note_untraced_child(event.thread());
  if (kind == trace::RecordKind::fork && !is_borrowed_image()) hand_over_memory(event.thread());
  emit(event.thread(), kind,
       trace::ProcessRecord{
           .header = {}, .pid = pid, .status = 0, .stack_id = stack_id, .tid = event.thread().writer.tid});
  trace::ring_doorbell(event.thread().writer.pool);
  change_order();
}

void observe_exec(std::string_view program) noexcept {
  Observation event;
  if (!event || is_borrowed_image()) return;
  touch_before_exec(event.thread());
  emit_text(event.thread(), trace::RecordKind::exec, 0, program);
  flush_counts(event.thread());
  publish_liveness(event.thread(), false);
  trace::seal(event.thread().lease);
  trace::ring_doorbell(event.thread().writer.pool);
}

void observe_exec_failed(std::string_view program) noexcept {
  Observation event;
  if (!event || is_borrowed_image()) return;
  emit_text(event.thread(), trace::RecordKind::exec_failed, 0, program);
  publish_liveness(event.thread(), true);
  touch_after_failed_exec(event.thread());
}

void observe_exit(int status) noexcept {
  static constinit std::atomic<std::uint64_t> recorded{0};  // generation of the process that has said it
  Observation event;
  if (!event || is_borrowed_image()) return;
  ThreadState& thread = event.thread();
  if (recorded.exchange(thread.generation) == thread.generation) return;
  flush_counts(thread);
  if (g_torn_down.exchange(thread.generation) != thread.generation && !is_runtime_down(thread))
    tear_down(thread, trace::Teardown::process);
  emit(thread, trace::RecordKind::exit,
       trace::ProcessRecord{.header = {},
                            .pid = thread.writer.pid,
                            .status = status,
                            .stack_id = trace::kNoStack,
                            .tid = thread.writer.tid});
  trace::seal(thread.lease);
  trace::ring_doorbell(thread.writer.pool);
}

void observe_teardown(std::int32_t what) noexcept {
  Observation event;
  if (!event || is_borrowed_image()) return;
  ThreadState& thread = event.thread();
  if (what == trace::Teardown::script) return observe_end_of_script(thread);
  const bool of_runtime = what == trace::Teardown::runtime;
  const bool was_down = is_runtime_down(thread);
  if (of_runtime) g_runtime_ms.store(now_ms(), std::memory_order_relaxed);
  if (of_runtime && has_script_ended(thread)) what |= trace::Teardown::script;
  std::atomic<std::uint64_t>& done = of_runtime ? g_runtime_torn_down : g_torn_down;
  if (done.exchange(thread.generation) != thread.generation && !was_down) tear_down(thread, what);
}

std::uint32_t observe_thread_creation(const Caller& caller) noexcept {
  Observation event;
  return event ? event.stack(caller) : trace::kNoStack;
}

void observe_thread_start(std::uint32_t creation_stack_id, const void* stack_pointer) noexcept {
  Observation event;
  if (!event) return;
  emit(event.thread(), trace::RecordKind::thread,
       trace::ThreadRecord{.header = {},
                           .tid = event.thread().writer.tid,
                           .stack_id = creation_stack_id,
                           .stack_pointer = number_of(stack_pointer),
                           .thread_pointer = number_of(__builtin_thread_pointer())});
}

void observe_mark(trace::MarkKind kind, std::string_view text) noexcept {
  Observation event;
  if (!event) return;
  emit_text(event.thread(), trace::RecordKind::mark, static_cast<std::uint32_t>(kind), text);
  trace::ring_doorbell(event.thread().writer.pool);
}

void observe_allocator_stats(trace::StatsMoment moment) noexcept {
  if (Observation event; event && !is_borrowed_image()) tell_allocator_stats(event.thread(), moment);
}

void observe_note(std::string_view text) noexcept {
  if (Observation event; event) emit_text(event.thread(), trace::RecordKind::note, 0, text);
}

bool request_look(std::uint64_t longest_ns) noexcept {
  Observation event;
  if (!event || is_borrowed_image()) return false;
  trace::ProcessSlot* slot = slot_of(event.thread());
  if (slot == nullptr) return false;
  // A program that has just begun may be ahead of its collector.
  const std::uint64_t limit_ns = std::max(longest_ns, kLookNs + resident_pages() * kLookNsPerPage);
  if (look_now(event.thread(), limit_ns, std::max(longest_ns, kLongestLookNs), true)) return true;
  if (!trace::is_kernel_closed()) slot->looks_missed.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void last_walk_before_filter(ThreadState& thread) noexcept {
  flush_counts(thread);
  const trace::ProcessSlot* slot = slot_of(thread);
  const std::uint64_t pages = resident_pages();
  if (slot != nullptr && is_worth_last_look(*slot, pages)) last_look(thread, pages);
  trace::ring_doorbell(thread.writer.pool);
}

bool ensure_scratch(ThreadState& thread) noexcept {
  if (thread.scratch != nullptr) return true;
  thread.scratch = map_stack_scratch();
  if (thread.scratch == nullptr) return false;
  report_own_memory(thread, thread.scratch, sizeof(StackScratch));
  return true;
}

void report_own_memory(ThreadState& thread, const void* memory, std::size_t size_bytes) noexcept {
  emit(thread, trace::RecordKind::map,
       trace::MapRecord{.header = {},
                        .address = number_of(memory),
                        .size_bytes = size_bytes,
                        .file_offset = 0,
                        .prot = PROT_READ | PROT_WRITE,
                        .flags = MAP_PRIVATE | MAP_ANONYMOUS,
                        .fd = -1,
                        .origin = trace::MapOrigin::whyrss,
                        .stack_id = trace::kNoStack,
                        .tid = thread.writer.tid});
}

void give_back_own_memory(ThreadState& thread, void* memory, std::size_t size_bytes) noexcept {
  if (trace::is_kernel_closed()) return unmap_own(memory, size_bytes);  // kept for another
  emit(thread, trace::RecordKind::unmap,
       trace::RangeRecord{.header = {},
                          .address = number_of(memory),
                          .size_bytes = size_bytes,
                          .argument = 0,
                          .stack_id = trace::kNoStack,
                          .tid = thread.writer.tid});
  unmap_own(memory, size_bytes);
}

}  // namespace whyrss::shim
