#include "shim/observe_object.h"

#include "shim/emit.h"
#include "shim/exact_events.h"
#include "shim/observation.h"

namespace whyrss::shim {

void observe_object(const Caller& caller, std::uintptr_t block, std::size_t size_bytes) noexcept {
  if (Observation event; event) emit_compact_allocate(event.thread(), block, size_bytes, event.stack(caller));
}

void observe_object_release(std::uintptr_t block) noexcept {
  if (Observation event; event) emit_compact_release(event.thread(), block);
}

void observe_object_release_undone(std::uintptr_t block) noexcept {
  Observation event;
  if (!event) return;
  emit(event.thread(), trace::RecordKind::release_undone,
       trace::BlockRecord{.header = {},
                          .address = block,
                          .size_bytes = 0,
                          .sampled_bytes = 0,
                          .stack_id = trace::kNoStack,
                          .tid = event.thread().writer.tid});
}

}  // namespace whyrss::shim
