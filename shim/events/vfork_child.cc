#include "shim/events/vfork_child.h"

#include <atomic>

#include "shim/trace/own_calls.h"

namespace whyrss::shim {
namespace {

constinit std::atomic<bool> g_vfork_since{false};

}  // namespace

bool leave_vfork_child() noexcept {
  const bool closed = trace::t_kernel_closed;
  trace::t_kernel_closed = false;
  return closed;
}

void stay_vfork_child() noexcept { trace::t_kernel_closed = true; }

void note_vfork() noexcept {
  if (trace::is_kernel_closed()) g_vfork_since.store(true, std::memory_order_relaxed);
}

bool may_be_vfork_child() noexcept { return trace::t_kernel_closed || g_vfork_since.load(std::memory_order_relaxed); }

}  // namespace whyrss::shim
