// The functions of whyrss.h.
#include <atomic>

#include "shim/hooks/entry_allocate.h"
#include "shim/observe/observe.h"
#include "shim/process/final_walk.h"
#include "shim/trace/clock.h"

namespace whyrss::shim {
namespace {

// A phase begins and ends with a walk of the process, for which it waits a few milliseconds: so it has the state of
// that moment. Where that would cost a twentieth of the time or more, the process gives its size instead.
void observe_phase_edge(whyrss::trace::MarkKind kind, std::string_view name) noexcept {
  constexpr std::uint64_t kCosts = 20;
  static constinit std::atomic<std::uint64_t> next_ns{0};
  const std::uint64_t begun_ns = whyrss::trace::now_ns();
  const bool is_due = begun_ns >= next_ns.load(std::memory_order_relaxed);
  if (!is_due) observe_size();
  observe_mark(kind, name);
  if (!is_due) return;
  request_walk();
  const std::uint64_t ended_ns = whyrss::trace::now_ns();
  next_ns.store(ended_ns + kCosts * (ended_ns - begun_ns), std::memory_order_relaxed);
}

std::string_view text_of(const char* text) noexcept {
  return text != nullptr ? std::string_view(text) : std::string_view();
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void whyrss_phase_begin(const char* name) noexcept {
  observe_phase_edge(whyrss::trace::MarkKind::phase_begin, text_of(name));
}

WHYRSS_ENTRY void whyrss_phase_end(const char* name) noexcept {
  observe_phase_edge(whyrss::trace::MarkKind::phase_end, text_of(name));
}

WHYRSS_ENTRY void whyrss_mark(const char* text) noexcept { observe_mark(whyrss::trace::MarkKind::mark, text_of(text)); }

WHYRSS_ENTRY void whyrss_snapshot() noexcept {
  observe_mark(whyrss::trace::MarkKind::snapshot, {});
  observe_allocator_stats(whyrss::trace::StatsMoment::snapshot);
  request_walk();
}
