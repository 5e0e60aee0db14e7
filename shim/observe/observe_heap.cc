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
    usable < trace::kLargeBlockBytes ? map_leaves(thread, block, usable) : map_block_start(thread, block);
    change_live(thread, directory, block, usable, LiveChange::allocate);
  }
  if (event && usable < trace::kLargeBlockBytes) use_own_pages(thread, block);
}

void change_counted(const void* block, std::size_t usable, LiveChange change) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory != nullptr) change_live(thread_state(), directory, block, usable, change);
}

// Kept with a block that is followed: it is counted too, as it is a sample; without it it is large.
constexpr std::uint16_t kCounted = 1;

// One more or one less that lives.
void count_large(const ThreadState& thread, std::size_t usable, int more) noexcept {
  more > 0 ? g_large_blocks.add(usable) : g_large_blocks.remove(usable);
  if (trace::ProcessSlot* slot = slot_of(thread); slot != nullptr)
    add_to(slot->live_bytes, more * static_cast<std::int64_t>(usable));
}

// False: the block is not followed.
bool log_large(Observation& event, const Caller& caller, const void* block, std::size_t usable) noexcept {
  ThreadState& thread = event.thread();
  if (!follow_block(thread, block)) return false;
  if (is_counted_unfollowed(usable)) thread.large_pace.count();
  if (trace::ProcessSlot* slot = slot_of(thread); slot != nullptr) add_to(slot->large_allocations, 1);
  count_large(thread, usable, 1);
  emit_allocation(thread, trace::RecordKind::allocate, stack_of(event, caller), number_of(block), usable);
  change_order();
  return true;
}

void log_sampled(Observation& event, const Caller& caller, const void* block, std::size_t usable,
                 std::uint64_t sampled_bytes) noexcept {
  ThreadState& thread = event.thread();
  if (!follow_block(thread, block, kCounted)) return;
  thread.pace.count();
  const std::uint32_t stack = stack_of(event, caller);
  if (usable < trace::kLargeBlockBytes) {
    emit_block(thread, trace::RecordKind::allocate, stack, number_of(block), usable, sampled_bytes);
  } else {
    thread.large_pace.count();
    emit_allocation(thread, trace::RecordKind::allocate, stack, number_of(block), usable, sampled_bytes);
  }
}

void count_or_sample(Observation& event, const Caller& caller, const void* block, std::size_t usable,
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

bool follow_block(ThreadState& thread, const void* block, std::uint16_t note) noexcept {
  if (live_blocks().insert(block, note)) return true;
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
  const bool may_be_counted = is_counted_unfollowed(usable);
  const bool large = usable >= trace::kLargeBlockBytes && !(may_be_counted && counts_large(thread));
  const bool logged = event && large && log_large(event, caller, block, usable);
  if (!logged && may_be_counted) {
    if (event) count_or_sample(event, caller, block, usable, requested);
    count_live(event, block, usable);  // after the record: see event_order.h
  }
  if (!event) return;
  serve_stats_request(thread);
  serve_library_hooks(thread);
}

namespace {

Released log_release(const void* block, std::size_t usable) noexcept {
  // Also while our own code runs: the address is about to be reused.
  std::uint16_t note = 0;
  if (live_blocks().may_contain(block) && live_blocks().remove(block, &note)) {
    log_logged_release(block, emit_release);
    return note == kCounted ? Released::sample : Released::large;
  }
  if (!is_counted_unfollowed(usable)) return Released::unknown;
  if (!heap().exact) return Released::counted;
  if (Observation event; event) emit_compact_release(event.thread(), number_of(block));
  return Released::compact;
}

bool is_counted(Released released) noexcept { return released != Released::large && released != Released::unknown; }

}  // namespace

Released observe_release(const void* block) noexcept {
  ThreadState& thread = thread_state();
  touch_before_removal(thread, block, 1);
  const std::size_t usable = usable_bytes(block);
  const Released released = log_release(block, usable);
  if (released == Released::large) count_large(thread, usable, -1);
  if (is_counted(released)) {
    ++thread.small_releases;
    thread.small_released_bytes += usable;
    change_counted(block, usable, LiveChange::release);
  }
  return released;
}

void observe_release_undone(const void* block, Released released) noexcept {
  const std::size_t usable = usable_bytes(block);
  ThreadState& thread = thread_state();
  if (is_counted(released)) {
    change_counted(block, usable, LiveChange::undo_release);
    --thread.small_releases;
    thread.small_released_bytes -= usable;
  }
  if (released == Released::large) count_large(thread, usable, 1);
  if (released == Released::counted || released == Released::unknown) return;
  if (released != Released::compact) live_blocks().insert(block, released == Released::sample ? kCounted : 0);
  log_logged_release(block, emit_release_undone);
}

void observe_distant_release(const void* block) noexcept {
  if (Observation event; event) use_own_pages(event.thread(), block);
}

}  // namespace whyrss::shim
