// The functions of whyrss.h.
#include "shim/entry_allocate.h"
#include "shim/observe.h"

namespace whyrss::shim {
namespace {

std::string_view text_of(const char* text) noexcept {
  return text != nullptr ? std::string_view(text) : std::string_view();
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void whyrss_phase_begin(const char* name) noexcept {
  observe_mark(whyrss::trace::MarkKind::phase_begin, text_of(name));
}

WHYRSS_ENTRY void whyrss_phase_end(const char* name) noexcept {
  observe_mark(whyrss::trace::MarkKind::phase_end, text_of(name));
}

WHYRSS_ENTRY void whyrss_mark(const char* text) noexcept { observe_mark(whyrss::trace::MarkKind::mark, text_of(text)); }

WHYRSS_ENTRY void whyrss_snapshot() noexcept {
  observe_mark(whyrss::trace::MarkKind::snapshot, {});
  observe_allocator_stats(whyrss::trace::StatsMoment::snapshot);
  request_look();
}
