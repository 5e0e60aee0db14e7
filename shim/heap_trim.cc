#include "shim/heap_trim.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>

#include "shim/allocator_stats.h"
#include "shim/observe.h"
#include "shim/session.h"

namespace whyrss::shim {
namespace {

// The program has chosen to wait for this.
constexpr std::uint64_t kLookNs = 10'000'000'000;

}  // namespace

void trim_at_end() noexcept {
  static constinit std::atomic<std::uint64_t> trimmed{0};  // generation of the process that has done it
  if (!session().settings.trim_at_end || session().allocator != trace::Allocator::glibc) return;
  if (is_borrowed_image() || allocator_may_be_locked()) return;
  const std::uint64_t generation = thread_state().generation;
  if (trimmed.exchange(generation) == generation) return;
  const int saved_errno = errno;
  if (request_look(kLookNs)) {
    observe_mark(trace::MarkKind::mark, trace::kTrimMark);
    malloc_trim(0);
    request_look(kLookNs);
  }
  errno = saved_errno;
}

}  // namespace whyrss::shim
