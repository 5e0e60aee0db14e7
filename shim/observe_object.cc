#include "shim/observe_object.h"

#include <algorithm>
#include <bit>

#include "shim/block_event.h"
#include "shim/exact_events.h"
#include "shim/heap_settings.h"
#include "shim/live_blocks.h"
#include "shim/observation.h"
#include "shim/sampling.h"

namespace whyrss::shim {
namespace {

// A thread may take so many samples at once, and then so many a millisecond: what is loaded in one go is known well,
// and who allocates a gigabyte a second for long spends less than 1 % of its time on samples.
constexpr std::uint32_t kMostCredit = 4096, kCreditPerMs = 8;
constexpr std::uint32_t kSamplesBetween = 64;  // readings of the clock
// Powers of 2 by which samples become rarer while less than half of that, a quarter ... is left.
constexpr int kCoarsest = 4;

void pace(ThreadState& thread) noexcept {
  if (++thread.objects_sampled % kSamplesBetween != 0) return;
  const std::uint64_t now = now_ns();
  const std::uint64_t earned = (now - thread.object_paced_ns) / 1'000'000 * kCreditPerMs;
  thread.object_paced_ns = now;
  const std::uint64_t credit = std::min<std::uint64_t>(kMostCredit, thread.object_credit + earned);
  thread.object_credit = static_cast<std::uint32_t>(credit - std::min<std::uint64_t>(credit, kSamplesBetween));
  const int halvings = std::countl_zero(thread.object_credit | 1) - std::countl_zero(kMostCredit - 1);
  thread.object_coarseness = static_cast<std::uint32_t>(std::clamp(halvings, 0, kCoarsest));
}

// release or release_undone; they bear neither size nor stack.
void log_release(trace::RecordKind kind, const PymallocBlock& block) noexcept {
  if (Observation event; event) emit_block(event.thread(), kind, trace::kNoStack, block.start, 0, 0);
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
  log_release(trace::RecordKind::release_undone, block);
}

void observe_sampled_object(const Caller& caller, const void* object, std::size_t requested) noexcept {
  Observation event;  // a thread is entered here: only now it has a countdown
  if (!event || passes_unsampled(event.thread(), requested)) return;
  ThreadState& thread = event.thread();
  const std::uint64_t coarseness = thread.object_coarseness;
  pace(thread);
  thread.object_left = next_gap(thread.random, heap().sample_bytes << thread.object_coarseness);
  // What does not fit into a pool comes from malloc, which has counted it.
  const PymallocBlock block = pymalloc_block_at(object);
  if (block.start == 0 || !follow_block(thread, object)) return;
  emit_block(thread, trace::RecordKind::allocate, event.stack(caller), block.start, block.size_bytes,
             counted_object(requested) | coarseness << trace::BlockRecord::kCoarsenessShift);
}

bool observe_sampled_release(const void* object) noexcept {
  const PymallocBlock block = pymalloc_block_at(object);
  // One that malloc has served is malloc's.
  if (block.start == 0 || !live_blocks().remove(object)) return false;
  log_release(trace::RecordKind::release, block);
  return true;
}

void observe_sampled_release_undone(const void* object) noexcept {
  live_blocks().insert(object);
  log_release(trace::RecordKind::release_undone, pymalloc_block_at(object));
}

}  // namespace whyrss::shim
