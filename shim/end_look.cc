#include "shim/end_look.h"

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

void look_at_end() noexcept {
  static constinit std::atomic<std::uint64_t> looked{0};  // generation of the process that has done it
  const AtEnd wanted = session().settings.at_end;
  if (wanted == AtEnd::usual || is_borrowed_image()) return;
  const std::uint64_t generation = thread_state().generation;
  if (looked.exchange(generation) == generation) return;
  const int saved_errno = errno;
  if (request_look(kLookNs) && wanted == AtEnd::trim && session().allocator == trace::Allocator::glibc &&
      !allocator_may_be_locked()) {
    observe_mark(trace::MarkKind::mark, trace::kTrimMark);
    malloc_trim(0);
    request_look(kLookNs);
  }
  errno = saved_errno;
}

}  // namespace whyrss::shim
