#include "shim/process/restriction.h"

#include <atomic>
#include <cerrno>

#include "shim/events/emit.h"
#include "shim/events/own_memory_events.h"
#include "shim/events/session_state.h"
#include "shim/faults/touch_event.h"
#include "shim/heap/observation.h"
#include "shim/observe/observe.h"
#include "shim/process/final_walk.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/vdso.h"
#include "shim/trace/clock.h"
#include "shim/trace/own_calls.h"

namespace whyrss::shim {
namespace {

constinit std::atomic<bool> g_ended{false};

// What the thread may need later and cannot ask for then.
void set_memory_aside(ThreadState& thread) noexcept {
  ensure_scratch(thread);
  if (void* reserve = map_reserve(); reserve != nullptr) report_own_memory(thread, reserve, kReserveBytes);
}

constexpr std::string_view kNoClock =
    "tracing ends: the program installs a seccomp filter, and the clock needs a system call here";
constexpr std::string_view kStrict = "tracing ends: the program enters seccomp's strict mode";

void end_tracing(ThreadState& thread, std::string_view why) noexcept {
  emit_note(thread, why);
  trace::seal(thread.lease);
  trace::freeze_clock();
  thread.fast = false;
  g_session.phase.store(Phase::off, std::memory_order_release);
  g_ended.store(true, std::memory_order_relaxed);
}

// Before the restriction is in force: reports to the reader what cannot be reported afterwards.
void prepare(ThreadState& thread, Restriction restriction) noexcept {
  last_walk_before_filter(thread);
  set_memory_aside(thread);
  touch_before_filter(thread);
  trace::add_chunks(session().pool, session().pool.header->chunk_count);  // writers may not ask for space then
  if (restriction == Restriction::strict) return end_tracing(thread, kStrict);
  if (!is_clock_in_vdso()) end_tracing(thread, kNoClock);
}

}  // namespace

bool begin_restriction(Restriction restriction) noexcept {
  if (trace::is_kernel_closed()) return false;
  if (is_vfork_child()) {
    if (restriction == Restriction::strict) trace::leave_tsc();
    trace::t_kernel_closed = true;
    return true;
  }
  if (Observation event; event) prepare(event.thread(), restriction);
  trace::close_kernel();
  return true;
}

void undo_restriction() noexcept {
  if (trace::t_kernel_closed) {
    trace::t_kernel_closed = false;
    return;
  }
  trace::open_kernel();
  if (g_ended.exchange(false)) {
    trace::thaw_clock();
    g_session.phase.store(Phase::live, std::memory_order_release);
  }
  if (Observation event; event) touch_after_failed_filter(event.thread());
}

void note_restriction() noexcept {
  if (!trace::t_kernel_closed)
    observe_note("the program has installed a seccomp filter: page faults are not followed any more");
}

}  // namespace whyrss::shim
