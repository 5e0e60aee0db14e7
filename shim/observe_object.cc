#include "shim/observe_object.h"

#include "shim/emit.h"
#include "shim/observation.h"

namespace whyrss::shim {
namespace {

void emit_object(Observation& event, trace::RecordKind kind, std::uintptr_t block, std::size_t size_bytes,
                 std::uint32_t stack_id) noexcept {
  emit(event.thread(), kind,
       trace::BlockRecord{.header = {},
                          .address = block,
                          .size_bytes = size_bytes,
                          .sampled_bytes = 0,
                          .stack_id = stack_id,
                          .tid = event.thread().writer.tid});
}

}  // namespace

void observe_object(const Caller& caller, std::uintptr_t block, std::size_t size_bytes) noexcept {
  if (Observation event; event) emit_object(event, trace::RecordKind::allocate, block, size_bytes, event.stack(caller));
}

void observe_object_release(std::uintptr_t block) noexcept {
  if (Observation event; event) emit_object(event, trace::RecordKind::release, block, 0, trace::kNoStack);
}

void observe_object_release_undone(std::uintptr_t block) noexcept {
  if (Observation event; event) emit_object(event, trace::RecordKind::release_undone, block, 0, trace::kNoStack);
}

}  // namespace whyrss::shim
