#include "shim/observe/observe_object.h"

#include <atomic>

#include "shim/events/caller.h"
#include "shim/events/sampling_pace.h"
#include "shim/events/unmoved_bytes.h"
#include "shim/heap/heap_settings.h"
#include "shim/heap/live_blocks.h"
#include "shim/heap/observation.h"
#include "shim/heap/sampling.h"
#include "shim/observe/block_event.h"
#include "shim/observe/exact_events.h"
#include "shim/observe/exact_fast_path.h"
#include "shim/observe/library_hooks.h"

namespace whyrss::shim {
namespace {

constinit SamplingPace g_pace;                         // counted by the thread that holds the GIL
constinit std::atomic<std::uint32_t> g_drawn_with{0};  // the coarseness of the distance that is being counted down

// For which a sample stands.
std::int64_t bytes_of_sample() noexcept {
  return static_cast<std::int64_t>(heap().sample_bytes << g_drawn_with.load(std::memory_order_relaxed));
}

// release or release_undone; they bear neither size nor stack.
void log_release(trace::RecordKind kind, const PymallocBlock& block) noexcept {
  if (Observation event; event) emit_block(event.thread(), kind, trace::kNoStack, block.start, 0, 0);
}

}  // namespace

void observe_object(const Caller& caller, const PymallocBlock& block) noexcept {
  if (object_on_fast_path(thread_state(), caller, block)) [[likely]]
    return;
  if (Observation event; event) {
    takes_objects_over(&event.thread());
    emit_compact_allocate(event.thread(), block.start, block.size_bytes, event.stack(caller));
  }
}

void observe_object_release(const PymallocBlock& block) noexcept {
  if (object_release_on_fast_path(thread_state(), block)) [[likely]]
    return;
  if (Observation event; event) {
    takes_objects_over(&event.thread());
    emit_compact_release(event.thread(), block.start);
  }
}

void observe_object_release_undone(const PymallocBlock& block) noexcept {
  log_release(trace::RecordKind::release_undone, block);
  change_order();
}

constinit std::int64_t g_object_countdown = 0;

// A request is sampled where the subtraction of its size makes the countdown negative: where it reaches the gap.
void restart_object_countdown(ThreadState& thread) noexcept {
  const std::uint32_t coarseness = g_pace.coarseness();
  g_drawn_with.store(coarseness, std::memory_order_relaxed);
  const std::uint64_t gap = next_gap(thread.random, heap().sample_bytes << coarseness);
  std::atomic_ref(g_object_countdown).store(static_cast<std::int64_t>(gap) - 1, std::memory_order_relaxed);
}

ObjectSample take_object_sample(std::size_t requested) noexcept {
  const std::uint64_t coarseness = g_drawn_with.load(std::memory_order_relaxed);
  restart_object_countdown(thread_state());
  if (heap().sample_bytes == 0 || requested > kMostPoolRequest) return {};
  return {.sampled_bytes = requested | coarseness << trace::BlockRecord::kCoarsenessShift};
}

void log_sampled_object(const Caller& caller, const ObjectSample& sample, const PymallocBlock& block,
                        const void* object) noexcept {
  Observation event;
  if (!event || !follow_block(event.thread(), object)) return;
  g_pace.count();
  note_objects(event.thread(), bytes_of_sample());
  emit_block(event.thread(), trace::RecordKind::allocate, event.stack(caller), block.start, block.size_bytes,
             sample.sampled_bytes);
  serve_library_hooks(event.thread());
}

bool log_sampled_release(const void* object) noexcept {
  const PymallocBlock block = pymalloc_block_at(object);
  // One that malloc has served is malloc's.
  if (block.start == 0 || !live_blocks().remove(object)) return false;
  note_objects(thread_state(), -bytes_of_sample());
  log_release(trace::RecordKind::release, block);
  return true;
}

void log_sampled_release_undone(const void* object) noexcept {
  live_blocks().insert(object);
  log_release(trace::RecordKind::release_undone, pymalloc_block_at(object));
}

}  // namespace whyrss::shim
