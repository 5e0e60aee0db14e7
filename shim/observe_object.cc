#include "shim/observe_object.h"

#include "shim/block_event.h"
#include "shim/exact_events.h"
#include "shim/heap_settings.h"
#include "shim/live_blocks.h"
#include "shim/observation.h"
#include "shim/sampling.h"

namespace whyrss::shim {
namespace {

void emit_sampled(trace::RecordKind kind, const void* object) noexcept {
  const PymallocBlock block = pymalloc_block_at(object);
  if (Observation event; event && block.start != 0)
    emit_block(event.thread(), kind, trace::kNoStack, block.start, 0, 0);
}

}  // namespace

void observe_object(const Caller& caller, const PymallocBlock& block) noexcept {
  if (Observation event; event)
    emit_compact_allocate(event.thread(), block.start, block.size_bytes, event.stack(caller));
}

void observe_object_release(const PymallocBlock& block) noexcept {
  if (Observation event; event) emit_compact_release(event.thread(), block.start);
}

void observe_object_release_undone(const PymallocBlock& block) noexcept {
  if (Observation event; event)
    emit_block(event.thread(), trace::RecordKind::release_undone, trace::kNoStack, block.start, 0, 0);
}

void observe_sampled_object(const Caller& caller, const void* object, std::size_t requested) noexcept {
  Observation event;  // a thread is entered here: only now it has a countdown
  if (!event || passes_unsampled(event.thread(), requested)) return;
  ThreadState& thread = event.thread();
  const std::uint64_t coarseness = thread.object_pace.coarseness();
  thread.object_pace.count(now_ns);
  thread.object_left = next_gap(thread.random, heap().sample_bytes << thread.object_pace.coarseness());
  // What does not fit into a pool comes from malloc, which has counted it.
  const PymallocBlock block = pymalloc_block_at(object);
  if (block.start == 0 || !follow_block(thread, object)) return;
  emit_block(thread, trace::RecordKind::allocate, event.stack(caller), block.start, block.size_bytes,
             counted_object(requested) | coarseness << trace::BlockRecord::kCoarsenessShift);
}

bool observe_sampled_release(const void* object) noexcept {
  // One that malloc has served is malloc's.
  if (pymalloc_block_at(object).start == 0 || !live_blocks().remove(object)) return false;
  emit_sampled(trace::RecordKind::release, object);
  return true;
}

void observe_sampled_release_undone(const void* object) noexcept {
  live_blocks().insert(object);
  emit_sampled(trace::RecordKind::release_undone, object);
}

}  // namespace whyrss::shim
