#include "shim/stacks/stack_scratch.h"

#include "shim/events/own_memory_events.h"
#include "shim/sys/own_memory.h"

namespace whyrss::shim {

StackScratch* map_stack_scratch() noexcept {
  auto* scratch = static_cast<StackScratch*>(map_own_of_thread(sizeof(StackScratch)));
  if (scratch == nullptr) return nullptr;
  // Faulted in one by one: MADV_POPULATE_WRITE would hold the lock of all mappings, also while others have their turn.
  const auto* used_begin = reinterpret_cast<const unsigned char*>(scratch->memo.outermost()) - 1024;
  auto* used_end = reinterpret_cast<volatile unsigned char*>(&scratch->walked) + 1024;
  for (volatile unsigned char* page = used_end; page >= used_begin; page -= 4096) *page = 0;
  return scratch;
}

bool ensure_scratch(ThreadState& thread) noexcept {
  if (thread.scratch != nullptr) return true;
  thread.scratch = map_stack_scratch();
  if (thread.scratch == nullptr) return false;
  report_own_memory(thread, thread.scratch, sizeof(StackScratch));
  return true;
}

}  // namespace whyrss::shim
