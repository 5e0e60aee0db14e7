#include "shim/observe/library_blocks.h"

#include <algorithm>
#include <cstdint>

#include "shim/events/event_order.h"
#include "shim/events/unmoved_bytes.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/observation.h"
#include "shim/observe/block_event.h"
#include "shim/sys/readable_page.h"

namespace whyrss::shim {
namespace {

std::uintptr_t number_of(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

// The stack as it is at the first instruction of `function`: that frame says whose block it is.
Caller within(const Caller& caller, const void* function) noexcept {
  return {.ip = number_of(function) + 1, .sp = caller.sp - sizeof(std::uintptr_t), .bp = caller.bp};
}

// Those that it fills, at most 256 MiB of them: enough to tell whether a last walk is worth it.
std::uint16_t pages_of(std::size_t size_bytes) noexcept {
  return static_cast<std::uint16_t>(std::min<std::size_t>(size_bytes / kPageBytes, UINT16_MAX));
}

// Pages that the allocator keeps for later move neither RSS nor page faults.
template <class Emit>
void log_library_release(const void* block, std::uint16_t pages, Emit emit_of) noexcept {
  if (Observation event; event) {
    emit_of(event.thread(), number_of(block));
    note_unmoved(event.thread(), pages * kPageBytes);
  }
  change_order();
}

}  // namespace

void observe_library_allocate(const Caller& caller, const void* function, const void* block,
                              std::size_t size_bytes) noexcept {
  if (block == nullptr || (size_bytes < trace::kLibraryBlockBytes && !heap().exact)) return;
  const std::uint16_t pages = pages_of(size_bytes);
  Observation event;
  if (!event || !follow_block(event.thread(), block, pages)) return;
  const std::uint32_t stack = event.stack(function != nullptr ? within(caller, function) : caller);
  emit_allocation(event.thread(), trace::RecordKind::library_allocate, stack, number_of(block), size_bytes);
  note_unmoved(event.thread(), pages * kPageBytes);
  change_order();
}

bool observe_library_release(const void* block) noexcept {
  // Also while our own code runs: the address is about to be reused.
  std::uint16_t pages = 0;
  if (block == nullptr || !live_blocks().may_contain(block) || !live_blocks().remove(block, &pages)) return false;
  log_library_release(block, pages, emit_release);
  return true;
}

void observe_library_release_undone(const void* block) noexcept {
  live_blocks().insert(block);
  log_library_release(block, 0, emit_release_undone);
}

}  // namespace whyrss::shim
