#include "shim/stacks/stack_scratch.h"

#include <sys/syscall.h>

#include "shim/events/own_memory_events.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {

StackScratch* map_stack_scratch() noexcept {
  auto* scratch = static_cast<StackScratch*>(map_own(sizeof(StackScratch)));
  if (scratch == nullptr) return nullptr;
  // Three pages at once for the price of one fault, since Linux 5.14; elsewhere they come as they are touched.
  constexpr long kPopulateWrite = 23;
  const std::uint64_t used_end = reinterpret_cast<std::uint64_t>(&scratch->walked) + 1024;
  const std::uint64_t used_begin = reinterpret_cast<std::uint64_t>(scratch->memo.outermost()) - 1024;
  const std::uint64_t first_page = used_begin & ~std::uint64_t{4095};
  own_syscall(SYS_madvise, static_cast<long>(first_page),
              static_cast<long>((used_end - first_page + 4095) & ~std::uint64_t{4095}), kPopulateWrite);
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
