#include "shim/observe/exact_fast_path.h"

#include <atomic>
#include <cstdint>

#include "shim/events/caller.h"
#include "shim/events/event_order.h"
#include "shim/events/guard.h"
#include "shim/events/outermost_caller.h"
#include "shim/events/own_memory_events.h"
#include "shim/events/session_state.h"
#include "shim/faults/touch_event.h"
#include "shim/heap/heap_settings.h"
#include "shim/heap/live_blocks.h"
#include "shim/heap/liveness.h"
#include "shim/heap/observation.h"
#include "shim/observe/exact_events.h"
#include "shim/observe/observe_heap.h"
#include "shim/stacks/stack_capture.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/sys/single_threaded.h"

namespace whyrss::shim {
namespace {

[[gnu::always_inline]] inline bool has_fast_path(const ThreadState& thread, std::size_t record_bytes) noexcept {
  return thread.fast && thread.busy_sp == 0 &&
         session().control->generation.load(std::memory_order_acquire) == thread.generation &&
         goes_on(thread.lease, record_bytes);
}

// Where a block is counted.
struct Place {
  LivenessDirectory directory;
  std::uint32_t* counter;  // of its page; nullptr: it lies on several, or nothing is counted
};

// False: a page has no counter yet.
[[gnu::always_inline]] inline bool find_place(const void* block, std::size_t usable, Place& place) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  place = {.directory = heap().directory.load(std::memory_order_acquire), .counter = nullptr};
  if (place.directory == nullptr) return true;
  std::uint32_t* counter = live_counter(place.directory, address);
  if (counter == nullptr) [[unlikely]]
    return false;
  if (address % trace::kLivenessPageBytes + usable > trace::kLivenessPageBytes) [[unlikely]]
    return live_counter(place.directory, address + usable - 1) != nullptr;
  place.counter = counter;
  return true;
}

struct Change {
  const void* block;
  std::size_t usable;
  LiveChange change;
  std::size_t record_bytes;
};

[[gnu::always_inline]] inline void count_on_pages(const Place& place, const Change& change) noexcept {
  if (place.counter != nullptr)
    add_live(place.counter, live_units(change.change, change.usable));
  else if (place.directory != nullptr)
    change_live_pages(place.directory, AddTo::common, change.block, change.usable, change.change);
}

// On one page, in a program with threads. As stamp_and_count.
[[gnu::always_inline]] inline bool stamp_by_page(ThreadState& thread, std::uint32_t* counter, std::uint32_t units,
                                                 std::size_t record_bytes, std::uint32_t& since) noexcept {
  OrderedPage& page =
      thread.scratch->pages[reinterpret_cast<std::uintptr_t>(counter) / sizeof *counter % kOrderedPages];
  std::uint32_t value = page.value;
  const bool changed = has_order_changed(thread);
  if (page.counter == counter && __atomic_load_n(counter, __ATOMIC_RELAXED) == value) {
    const bool own = page.since != thread.fences;
    if (own && !changed && !is_due(thread) &&
        __atomic_compare_exchange_n(counter, &value, value + units, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      page.value = value + units;
      return true;
    }
    if (!own) fence_next_stamp(thread);
  } else {
    // Another thread may have given the block away a moment ago: the processor must not read the stamp before it reads
    // what that thread wrote.
    fence_next_stamp(thread);
  }
  const bool stamped = stamp_event(thread, record_bytes, since);
  const std::uint32_t before = __atomic_fetch_add(counter, units, __ATOMIC_ACQ_REL);
  if (page.counter != counter || before != page.value) {
    page.counter = counter;
    page.since = thread.fences;
  }
  page.value = before + units;
  return stamped;
}

// Stamps the event where it needs that, and counts it on its pages. False: its record is dropped.
[[gnu::always_inline]] inline bool stamp_and_count(ThreadState& thread, const Place& place, const Change& change,
                                                   std::uint32_t& since) noexcept {
  const bool single = is_single_threaded();
  if (!single && place.counter != nullptr) {
    const std::uint32_t units = live_units(change.change, change.usable);
    return stamp_by_page(thread, place.counter, units, change.record_bytes, since);
  }
  if (!single) fence_next_stamp(thread);
  const bool stamp = has_order_changed(thread) || is_due(thread) || !single;
  const bool stamped = !stamp || stamp_event(thread, change.record_bytes, since);
  count_on_pages(place, change);
  return stamped;
}

// A walk that is spared saves some 100 ns, the memory costs a page fault of some 2,000 for each of up to 29 pages.
constexpr std::uint32_t kStacksBeforeRecall = 256;

// The stack is not the last one. `room`: whether the lease still has some for the event.
[[gnu::noinline]] std::uint32_t find_or_describe_stack(ThreadState& thread, const Caller& program,
                                                       bool& room) noexcept {
  StackScratch& scratch = *thread.scratch;
  const std::uint32_t id = describe_stack(program, thread.writer, thread.lease, scratch);
  if (scratch.recall_wanted >= kStacksBeforeRecall) {
    scratch.recall_wanted = 0;
    scratch.recall = map_stack_recall();
    if (scratch.recall != nullptr) report_own_memory(thread, scratch.recall, sizeof(StackRecall));
  }
  room = goes_on(thread.lease, sizeof(trace::CompactAllocate));
  return id;
}

// As observe_allocate. False: not done, nothing has happened.
[[gnu::always_inline]] inline bool observe_allocate_quickly(ThreadState& thread, const Caller& caller,
                                                            const void* block, std::size_t requested) noexcept {
  if (!has_fast_path(thread, sizeof(trace::CompactAllocate))) return false;
  const std::size_t usable = usable_bytes(block, requested);
  if (usable >= trace::kLargeBlockBytes) return false;
  Place place{};
  if (!find_place(block, usable, place)) return false;
  const BusyBriefly busy(thread);
  Caller outer{};
  const Caller& program = thread.outer_sp == 0 ? caller : outermost(thread, caller, outer);
  bool room = true;
  std::uint32_t stack_id = same_stack(program, *thread.scratch);
  if (stack_id == trace::kNoStack) [[unlikely]]
    stack_id = find_or_describe_stack(thread, program, room);
  thread.last_block = block;
  ++thread.small_allocations;
  thread.small_allocated_bytes += usable;
  const Change change{
      .block = block, .usable = usable, .change = LiveChange::allocate, .record_bytes = sizeof(trace::CompactAllocate)};
  if (!room) [[unlikely]] {
    emit_compact_allocate(thread, reinterpret_cast<std::uintptr_t>(block), usable, stack_id);
    count_on_pages(place, change);
    return true;
  }
  std::uint32_t since = 0;
  if (stamp_and_count(thread, place, change, since)) [[likely]]
    write_compact_allocate(thread.lease, reinterpret_cast<std::uintptr_t>(block), usable, stack_id, since);
  return true;
}

// Stamps an event of an object, which no page counts, where it needs that. False: its record is dropped.
[[gnu::always_inline]] inline bool stamp_object(ThreadState& thread, std::size_t record_bytes,
                                                std::uint32_t& since) noexcept {
  const bool is_next = takes_objects_over(&thread);
  if (is_next) [[unlikely]]
    fence_next_stamp(thread);
  const bool stamp = has_order_changed(thread) || is_due(thread) || is_next;
  return !stamp || stamp_event(thread, record_bytes, since);
}

// Sampled mode: a block of several pages, or one of which the allocator must say the size. False: it is not for the
// countdown alone.
bool count_on_its_pages(ThreadState& thread, const void* block) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory == nullptr) return false;
  const std::size_t usable = usable_bytes(block);
  const std::uint64_t left = std::atomic_ref(thread.left).load(std::memory_order_relaxed);
  if (usable >= left || !change_live(thread, directory, block, usable, LiveChange::allocate)) return false;
  thread.left = left - usable;
  ++thread.small_allocations;
  thread.last_block = block;
  return true;
}

}  // namespace

void allow_fast_path(ThreadState& thread) noexcept {
  thread.fast = heap().exact && !heap().learning && !thread.ended && thread.scratch != nullptr;
}

void* count_allocated(void* block, std::size_t requested, std::uint64_t ip, std::uint64_t sp,
                      std::uint64_t bp) noexcept {
  ThreadState& thread = thread_state();
  const Caller caller{.ip = ip, .sp = sp, .bp = bp};
  if (!observe_allocate_quickly(thread, caller, block, requested) && !count_on_its_pages(thread, block))
    observe_allocate(caller, block, requested);
  return block;
}

bool release_on_fast_path(ThreadState& thread, const void* block) noexcept {
  if (!has_fast_path(thread, sizeof(trace::CompactRelease)) || live_blocks().may_contain(block)) return false;
  const std::size_t usable = usable_bytes(block);
  if (usable >= trace::kLargeBlockBytes) return false;
  Place place{};
  if (!find_place(block, usable, place)) return false;
  const BusyBriefly busy(thread);
  ++thread.small_releases;
  thread.small_released_bytes += usable;
  const Change change{
      .block = block, .usable = usable, .change = LiveChange::release, .record_bytes = sizeof(trace::CompactRelease)};
  std::uint32_t since = 0;
  if (stamp_and_count(thread, place, change, since)) [[likely]]
    write_compact_release(thread.lease, reinterpret_cast<std::uintptr_t>(block), since);
  return true;
}

bool object_on_fast_path(ThreadState& thread, const Caller& caller, const PymallocBlock& block) noexcept {
  if (!has_fast_path(thread, sizeof(trace::CompactAllocate))) return false;
  const BusyBriefly busy(thread);
  bool room = true;
  std::uint32_t stack_id = same_stack(caller, *thread.scratch);
  if (stack_id == trace::kNoStack) stack_id = find_or_describe_stack(thread, caller, room);
  std::uint32_t since = 0;
  if (!room) [[unlikely]]
    emit_compact_allocate(thread, block.start, block.size_bytes, stack_id);
  else if (stamp_object(thread, sizeof(trace::CompactAllocate), since)) [[likely]]
    write_compact_allocate(thread.lease, block.start, block.size_bytes, stack_id, since);
  return true;
}

bool object_release_on_fast_path(ThreadState& thread, const PymallocBlock& block) noexcept {
  if (!has_fast_path(thread, sizeof(trace::CompactRelease))) return false;
  const BusyBriefly busy(thread);
  std::uint32_t since = 0;
  if (stamp_object(thread, sizeof(trace::CompactRelease), since)) [[likely]]
    write_compact_release(thread.lease, block.start, since);
  return true;
}

}  // namespace whyrss::shim
