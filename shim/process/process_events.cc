#include "shim/process/process_events.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "shim/events/emit.h"
#include "shim/events/event_order.h"
#include "shim/events/session_state.h"
#include "shim/events/unmoved_bytes.h"
#include "shim/faults/touch_event.h"
#include "shim/faults/write_tracking.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/liveness.h"
#include "shim/heap/observation.h"
#include "shim/observe/library_hooks.h"

namespace whyrss::shim {
namespace {

std::uint64_t number_of(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

void note_untraced_child(ThreadState& thread) noexcept {
  static constinit std::atomic<bool> noted{false};
  if (!noted.exchange(true, std::memory_order_relaxed))
    emit_note(thread, "children forked since the program's seccomp filter are not traced inside");
}

}  // namespace

void note_fork() noexcept {
  Session& self = session();
  self.forks.fetch_add(1);
  if (self.phase.load(std::memory_order_acquire) != Phase::live) return;
  // Of a child that has not attached yet the page is empty.
  const trace::Writer& writer = self.control->writer;
  if (writer.pool && writer.slot != trace::kNoSlot) writer.pool.slots[writer.slot].forks.fetch_add(1);
}

void observe_child(const Caller& caller, trace::RecordKind kind, std::uint32_t pid) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  if (kind == trace::RecordKind::fork && trace::is_kernel_closed()) note_untraced_child(event.thread());
  if (kind == trace::RecordKind::fork && !is_vfork_child()) hand_off_uffd(event.thread());
  emit(event.thread(), kind,
       trace::ProcessRecord{
           .header = {}, .pid = pid, .status = 0, .stack_id = stack_id, .tid = event.thread().writer.tid});
  trace::ring_doorbell(event.thread().writer.pool);
  change_order();
}

void observe_ended_child(std::uint32_t pid, long max_rss_kib) noexcept {
  Observation event;
  if (!event) return;
  constexpr long kMost = std::numeric_limits<std::int32_t>::max();
  emit(event.thread(), trace::RecordKind::ended_child,
       trace::ProcessRecord{.header = {},
                            .pid = pid,
                            .status = static_cast<std::int32_t>(std::clamp(max_rss_kib, 0L, kMost)),
                            .stack_id = trace::kNoStack,
                            .tid = event.thread().writer.tid});
  note_ended_child(event.thread());
}

void observe_exec(std::string_view program) noexcept {
  Observation event;
  if (!event || is_vfork_child()) return;
  touch_before_exec(event.thread());
  emit_text(event.thread(), trace::RecordKind::exec, 0, program);
  flush_counts(event.thread());
  publish_liveness(event.thread(), false);
  trace::seal(event.thread().lease);
  trace::ring_doorbell(event.thread().writer.pool);
}

void observe_exec_failed(std::string_view program) noexcept {
  Observation event;
  if (!event || is_vfork_child()) return;
  emit_text(event.thread(), trace::RecordKind::exec_failed, 0, program);
  publish_liveness(event.thread(), true);
  touch_after_failed_exec(event.thread());
}

ThreadCreation observe_thread_creation(const Caller& caller, std::uint32_t starting) noexcept {
  Observation event;
  if (!event) return {};
  trace::keep_free(event.thread().writer.pool, starting + 1);
  return {.stack_id = event.stack(caller), .tid = event.thread().writer.tid};
}

void observe_thread_start(ThreadCreation creation, const void* stack_pointer) noexcept {
  Observation event;
  if (!event) return;
  emit(event.thread(), trace::RecordKind::thread_creator,
       trace::ThreadCreatorRecord{.header = {}, .tid = event.thread().writer.tid, .creator_tid = creation.tid});
  emit(event.thread(), trace::RecordKind::thread,
       trace::ThreadRecord{.header = {},
                           .tid = event.thread().writer.tid,
                           .stack_id = creation.stack_id,
                           .stack_pointer = number_of(stack_pointer),
                           .thread_pointer = number_of(__builtin_thread_pointer())});
  serve_library_hooks(event.thread());  // no allocator is on its stack
}

}  // namespace whyrss::shim
