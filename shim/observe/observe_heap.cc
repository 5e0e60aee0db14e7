// The events of the malloc family.
#include "shim/observe/observe_heap.h"

#include <algorithm>
#include <atomic>

#include "shim/events/caller.h"
#include "shim/events/emit.h"
#include "shim/events/event_order.h"
#include "shim/events/outermost_caller.h"
#include "shim/events/process_slot.h"
#include "shim/faults/touch_event.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/live_blocks.h"
#include "shim/heap/live_sum.h"
#include "shim/heap/liveness.h"
#include "shim/heap/observation.h"
#include "shim/observe/allocator_stats.h"
#include "shim/observe/block_event.h"
#include "shim/observe/exact_events.h"
#include "shim/observe/exact_fast_path.h"
#include "shim/observe/library_hooks.h"
#include "shim/sys/cheap_atomics.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

std::uint64_t number_of(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

std::uint32_t stack_of(Observation& event, const Caller& caller) noexcept {
  Caller outer{};
  return event.stack(outermost(event.thread(), caller, outer));
}

// Also while our own code runs, or where nothing can be written: its release will be counted.
void count_live(Observation& event, const void* block, std::size_t usable) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory == nullptr) return;
  ThreadState& thread = event.thread();
  if (!change_live(thread, directory, block, usable, LiveChange::allocate)) {
    if (!event) return;
    map_leaves(thread, block, usable);
    change_live(thread, directory, block, usable, LiveChange::allocate);
  }
  if (event) use_own_pages(thread, block);
}

void change_if_small(const void* block, std::size_t usable, LiveChange change) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory != nullptr && usable < trace::kLargeBlockBytes)
    change_live(thread_state(), directory, block, usable, change);
}

// One more or one less that lives.
void count_large(const ThreadState& thread, std::size_t usable, int more) noexcept {
  more > 0 ? g_large_blocks.add(usable) : g_large_blocks.remove(usable);
  if (trace::ProcessSlot* slot = slot_of(thread); slot != nullptr)
    add_to(slot->live_bytes, more * static_cast<std::int64_t>(usable));
}

void log_large(Observation& event, const Caller& caller, const void* block, std::size_t usable) noexcept {
  ThreadState& thread = event.thread();
  if (!follow_block(thread, block)) return;
  if (trace::ProcessSlot* slot = slot_of(thread); slot != nullptr) add_to(slot->large_allocations, 1);
  count_large(thread, usable, 1);
  emit_allocation(thread, trace::RecordKind::allocate, stack_of(event, caller), number_of(block), usable);
  change_order();
}

void log_sampled(Observation& event, const Caller& caller, const void* block, std::size_t usable,
                 std::uint64_t sampled_bytes) noexcept {
  ThreadState& thread = event.thread();
  if (!follow_block(thread, block)) return;
  thread.pace.count();
  emit_block(thread, trace::RecordKind::allocate, stack_of(event, caller), number_of(block), usable, sampled_bytes);
}

void count_small(Observation& event, const Caller& caller, const void* block, std::size_t usable,
                 std::size_t requested) noexcept {
  ThreadState& thread = event.thread();
  if (heap().exact) {
    ++thread.small_allocations;
    thread.small_allocated_bytes += usable;
    const std::uint32_t stack_id = stack_of(event, caller);
    emit_compact_allocate(thread, number_of(block), usable, stack_id);
    return allow_fast_path(thread);
  }
  const bool by_usable = heap().directory.load(std::memory_order_relaxed) != nullptr;
  const std::uint64_t counted = by_usable ? std::max<std::size_t>(usable, 1) : counted_request(requested);
  settle_countdown(thread);
  if (const std::uint64_t sampled_bytes = count_down(thread, counted); sampled_bytes != 0)
    log_sampled(event, caller, block, usable, sampled_bytes);
  arm_countdown(thread);
}

template <class Emit>
void log_logged_release(const void* block, Emit emit_of) noexcept {
  if (Observation event; event) emit_of(event.thread(), number_of(block));
  change_order();
}

}  // namespace

bool follow_block(ThreadState& thread, const void* block, std::uint16_t pages) noexcept {
  if (live_blocks().insert(block, pages)) return true;
  static constinit std::atomic<bool> reported{false};
  if (!reported.exchange(true))
    emit_text(thread, trace::RecordKind::note, 0, "some blocks are not followed: the table of live blocks is full");
  return false;
}

void observe_allocate(const Caller& caller, const void* block, std::size_t requested) noexcept {
  Observation event;  // a thread is entered here: only now it is known what is counted
  ThreadState& thread = event.thread();
  thread.last_block = block;
  if (heap().learning && event) {
    learn_sizes(block);
    open_liveness();
  }
  const std::size_t usable = usable_bytes(block, requested);
  const bool small = usable < trace::kLargeBlockBytes;
  if (event && small) count_small(event, caller, block, usable, requested);
  if (small) count_live(event, block, usable);  // after the record: see event_order.h
  if (!event) return;
  if (!small) log_large(event, caller, block, usable);
  serve_stats_request(thread);
  serve_library_hooks(thread);
}

namespace {

Released log_release(const void* block, std::size_t usable) noexcept {
  const bool small = usable < trace::kLargeBlockBytes;
  ThreadState& thread = thread_state();
  if (small) {
    ++thread.small_releases;
    thread.small_released_bytes += usable;
  }
  // Also while our own code runs: the address is about to be reused.
  if (live_blocks().may_contain(block) && live_blocks().remove(block)) {
    if (!small) count_large(thread, usable, -1);
    log_logged_release(block, emit_release);
    return Released::followed;
  }
  if (!heap().exact || !small) return Released::unlogged;
  if (Observation event; event) emit_compact_release(event.thread(), number_of(block));
  return Released::compact;
}

}  // namespace

Released observe_release(const void* block) noexcept {
  touch_before_removal(thread_state(), block, 1);
  const std::size_t usable = usable_bytes(block);
  const Released released = log_release(block, usable);
  change_if_small(block, usable, LiveChange::release);
  return released;
}

void observe_release_undone(const void* block, Released released) noexcept {
  const std::size_t usable = usable_bytes(block);
  const bool small = usable < trace::kLargeBlockBytes;
  change_if_small(block, usable, LiveChange::undo_release);
  ThreadState& thread = thread_state();
  if (small) {
    --thread.small_releases;
    thread.small_released_bytes -= usable;
  }
  if (released == Released::unlogged) return;
  if (released == Released::followed) {
    live_blocks().insert(block);
    if (!small) count_large(thread, usable, 1);
  }
  log_logged_release(block, emit_release_undone);
}

void observe_distant_release(const void* block) noexcept {
  if (Observation event; event) use_own_pages(event.thread(), block);
}

}  // namespace whyrss::shim
