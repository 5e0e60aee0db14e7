#include "shim/process/trim_at_end.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>

#include "shim/events/session_state.h"
#include "shim/observe/allocator_stats.h"
#include "shim/observe/observe.h"
#include "shim/process/final_walk.h"

namespace whyrss::shim {
namespace {

// The program has chosen to wait for this.
constexpr std::uint64_t kWalkWaitNs = 10'000'000'000;

}  // namespace

void walk_and_trim_at_end() noexcept {
  static constinit std::atomic<std::uint64_t> walked{0};  // generation of the process that has done it
  const AtEnd wanted = session().settings.at_end;
  if (wanted == AtEnd::usual || is_vfork_child()) return;
  const std::uint64_t generation = thread_state().generation;
  if (walked.exchange(generation) == generation) return;
  const int saved_errno = errno;
  if (request_walk(kWalkWaitNs) && wanted == AtEnd::trim && session().allocator == trace::Allocator::glibc &&
      !allocator_may_be_locked()) {
    observe_mark(trace::MarkKind::mark, trace::kTrimMark);
    malloc_trim(0);
    request_walk(kWalkWaitNs);
  }
  errno = saved_errno;
}

}  // namespace whyrss::shim
