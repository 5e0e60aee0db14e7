#include "shim/quick_events.h"

#include <atomic>
#include <cstdint>

#include "shim/exact_events.h"
#include "shim/guard.h"
#include "shim/heap_settings.h"
#include "shim/live_blocks.h"
#include "shim/liveness.h"
#include "shim/outermost_caller.h"
#include "shim/session.h"

namespace whyrss::shim {
namespace {

[[gnu::always_inline]] inline bool may_be_quick(const ThreadState& thread, std::size_t record_bytes) noexcept {
  return thread.quick && thread.busy_sp == 0 &&
         session().control->generation.load(std::memory_order_acquire) == thread.generation &&
         goes_on(thread.lease, record_bytes);
}

[[gnu::always_inline]] inline bool count_quickly(const void* block, std::size_t usable, LiveChange change) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  return directory == nullptr || change_live(directory, block, usable, change);
}

}  // namespace

void allow_quick_events(ThreadState& thread) noexcept {
  thread.quick = heap().exact && !heap().learning && !thread.ended && thread.scratch != nullptr;
}

bool observe_allocate_quickly(ThreadState& thread, const Caller& caller, const void* block,
                              std::size_t requested) noexcept {
  if (!may_be_quick(thread, sizeof(trace::CompactAllocate))) return false;
  const std::size_t usable = usable_bytes(block, requested);
  if (usable >= trace::kLargeBlockBytes) return false;
  const BusyBriefly busy(thread);
  Caller outer{};
  const Caller& program = thread.outer_sp == 0 ? caller : outermost(thread, caller, outer);
  std::uint32_t stack_id = same_stack(program, *thread.scratch);
  if (!count_quickly(block, usable, LiveChange::allocate)) return false;
  if (stack_id == trace::kNoStack) stack_id = describe_stack(program, thread.writer, thread.lease, *thread.scratch);
  thread.last_block = block;
  ++thread.small_allocations;
  thread.small_allocated_bytes += usable;
  emit_compact_allocate(thread, reinterpret_cast<std::uintptr_t>(block), usable, stack_id);
  return true;
}

bool observe_release_quickly(ThreadState& thread, const void* block) noexcept {
  if (!may_be_quick(thread, sizeof(trace::CompactRelease)) || live_blocks().may_contain(block)) return false;
  const std::size_t usable = usable_bytes(block);
  if (usable >= trace::kLargeBlockBytes) return false;
  const BusyBriefly busy(thread);
  count_quickly(block, usable, LiveChange::release);
  ++thread.small_releases;
  thread.small_released_bytes += usable;
  emit_compact_release(thread, reinterpret_cast<std::uintptr_t>(block));
  return true;
}

}  // namespace whyrss::shim
