#include "shim/faults/touch_event.h"

#include <linux/perf_event.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "shim/events/emit.h"
#include "shim/events/own_memory_events.h"
#include "shim/events/session_state.h"
#include "shim/faults/kernel_faults.h"
#include "shim/faults/touch_descriptor.h"
#include "shim/faults/touch_policy.h"
#include "shim/faults/touch_signal.h"
#include "shim/heap/sampling.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/start_check.h"

namespace whyrss::shim {
namespace {

// auto: short programs and the start of long ones are sampled closely, long ones at 1,000 samples per
// second at most. Primes, so that no stride of the program falls in step.
constexpr std::uint32_t kFirstPeriodFaults = 7;
constexpr std::uint32_t kLaterPeriodFaults = 61;
constexpr std::uint64_t kFaultsOfFirstPeriod = 2000;

constexpr std::string_view kFilterInstalled = "the program has installed a seccomp filter";

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kTrapBit = std::uint64_t{1} << (SIGTRAP - 1);

// Of this process.
struct TouchProcess {
  std::atomic<bool> wanted{false};  // in this image, and never again once it is false
  std::string_view off_reason;      // written once, before `wanted` is taken back
  std::atomic<std::uint64_t> sampled_faults{0};
  std::atomic<std::uint32_t> missed_faults{0};
  std::atomic<std::int32_t> armed_threads{0};
  bool wanted_unfiltered = false, counted_unfiltered = false;
  std::atomic<std::uint64_t> reported_generation{0};  // whose report says that some threads are not sampled
};
constinit TouchProcess g_touch;

std::uint32_t period_due() noexcept {
  const Settings& settings = session().settings;
  if (settings.touch_period_faults != 0) return settings.touch_period_faults;
  return g_touch.sampled_faults.load(std::memory_order_relaxed) < kFaultsOfFirstPeriod ? kFirstPeriodFaults
                                                                                       : kLaterPeriodFaults;
}

// Uniform in 1..limit.
std::uint32_t random_period(TouchThread& touch, std::uint32_t limit) noexcept {
  const auto value = static_cast<std::uint32_t>(next_random(touch.random));
  return 1 + static_cast<std::uint32_t>(std::uint64_t{value} * limit >> 32);
}

void drop_event(TouchThread& touch) noexcept {
  if (touch.event_page == nullptr) return;
  if (is_raw_error(own_syscall(SYS_munmap, as_long(touch.event_page), kPageBytes))) return;
  touch.event_page = nullptr;
  g_touch.armed_threads.fetch_sub(1, std::memory_order_relaxed);
}

// The event of the calling thread, each `every` faults. 0, or -errno.
long open_event(TouchThread& touch, std::uint32_t every) noexcept {
  // Counted before it is there, as its first signal may come before perf_event_open returns: who gives the handler back
  // to the program takes `wanted` back and then finds either us counted or us to have seen it.
  g_touch.armed_threads.fetch_add(1, std::memory_order_seq_cst);
  const auto uncount = [] { g_touch.armed_threads.fetch_sub(1, std::memory_order_relaxed); };
  if (!g_touch.wanted.load(std::memory_order_seq_cst)) {
    uncount();
    return 0;
  }
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
  attributes.sample_period = every;
  // Never PERF_SAMPLE_PERIOD: with it a software event samples every fault whatever the period says.
  attributes.sample_type = PERF_SAMPLE_ADDR;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.remove_on_exec = 1;
  attributes.sigtrap = 1;
  attributes.sig_data = event_cookie(touch.period_faults);
  const long page = map_event(&attributes);
  if (is_raw_error(page)) {
    uncount();
    return page;
  }
  drop_event(touch);
  touch.event_page = reinterpret_cast<void*>(page);
  return 0;
}

// A new event with a random first period.
long begin_period(TouchThread& touch, std::uint32_t period_faults) noexcept {
  touch.period_faults = period_faults;
  touch.steady = period_faults == 1;
  return open_event(touch, random_period(touch, period_faults));
}

bool is_trap_blocked() noexcept {
  std::uint64_t blocked = 0;
  own_syscall(SYS_rt_sigprocmask, 0, 0, as_long(&blocked), sizeof(blocked));
  return (blocked & kTrapBit) != 0;
}

std::string_view reason_of(long error) noexcept {
  switch (-error) {
    case EACCES:
    case EPERM:
      return "perf_event_open is not permitted: sysctl kernel.perf_event_paranoid=2 allows it, in Docker --cap-add "
             "PERFMON";
    case ENOMEM:
      return "the handler's stack does not fit into the address space";
    case EDQUOT:
      return "sysctl kernel.perf_event_mlock_kb allows this user no more events";
    case EMFILE:
    case ENFILE:
      return "no descriptor is free for perf_event_open";
    case ENOSYS:
    case EINVAL:
    case EOPNOTSUPP:
      return "this kernel has no page-fault events with sigtrap (Linux 5.18 has them)";
    default:
      return "perf_event_open failed";
  }
}

bool may_run(const TouchThread& touch) noexcept { return !touch.paused && !touch.signal_stack.unfit; }

// Where nothing speaks against it any more.
void run_again(TouchThread& touch) noexcept {
  if (may_run(touch) && g_touch.wanted.load(std::memory_order_acquire) && !trace::is_kernel_closed() &&
      !has_new_seccomp_filter())
    begin_period(touch, period_due());
}

void emit_state(ThreadState& thread, trace::TouchState state, std::string_view why) noexcept {
  emit_text(thread, trace::RecordKind::touch_state, static_cast<std::uint32_t>(state), why);
}

void stop(ThreadState& thread, std::string_view why) noexcept {
  g_touch.off_reason = why;
  g_touch.wanted.store(false, std::memory_order_release);
  emit_state(thread, trace::TouchState::off, why);
}

// One thread could not be armed; the others go on.
void report_once(ThreadState& thread, std::string_view why) noexcept {
  if (g_touch.reported_generation.exchange(thread.generation) == thread.generation) return;
  auto* note = static_cast<Text*>(map_own(sizeof(Text)));  // too large for a small thread's stack
  if (note == nullptr) return;
  note->add("page faults of some threads are not sampled: ").add(why);
  emit_text(thread, trace::RecordKind::note, 0, note->view());
  unmap_own(note, sizeof(Text));
}

TouchThread* thread_memory(ThreadState& thread) noexcept {
  if (thread.touch != nullptr) return thread.touch;
  thread.touch = static_cast<TouchThread*>(map_own_of_thread(sizeof(TouchThread)));
  if (thread.touch == nullptr) return nullptr;
  report_own_memory(thread, thread.touch, sizeof(TouchThread));
  return thread.touch;
}

// The calling thread begins to be sampled. 0, or -errno.
long arm(ThreadState& thread) noexcept {
  TouchThread* touch = thread_memory(thread);
  if (touch == nullptr || !ensure_scratch(thread)) return -ENOMEM;
  touch->event_page = nullptr;  // whatever is there was another process's
  touch->generation = thread.generation;
  touch->random = next_random(thread.read_random);
  take_up_signal_stack(touch->signal_stack);
  touch->paused = is_trap_blocked();
  return may_run(*touch) ? begin_period(*touch, period_due()) : 0;
}

}  // namespace

void start_touch(ThreadState& thread, const char* const* environment) noexcept {
  const Settings& settings = session().settings;
  if (settings.touch_off) return stop(thread, "switched off by touch=off");
  // What the kernel faults in is counted without a signal: also where one would hurt.
  std::string_view why = reason_against_touch(environment);
  if (why.empty() && is_event_deadly()) return stop(thread, "a seccomp filter kills for perf_event_open");
  if (why.empty() && !install_trap_handler()) why = "the program ignores SIGTRAP";
  if (why.empty()) {
    g_touch.wanted.store(true, std::memory_order_release);
    if (const long error = arm(thread); error != 0) return stop(thread, reason_of(error));
    emit_state(thread, trace::TouchState::armed, {});
  } else {
    stop(thread, why);
  }
  start_kernel_faults(settings.touch_period_faults);
}

void touch_enter_thread(ThreadState& thread) noexcept {
  if (!g_touch.wanted.load(std::memory_order_acquire) || thread.ended) return;
  if (has_new_seccomp_filter()) return report_once(thread, kFilterInstalled);
  if (!is_trap_handler_in_place()) return report_once(thread, "the program has replaced the SIGTRAP handler");
  if (const long error = arm(thread); error != 0) report_once(thread, reason_of(error));
}

void touch_enter_fork_child(ThreadState& thread) noexcept {
  if (!g_touch.wanted.load(std::memory_order_acquire)) {
    if (!g_touch.off_reason.empty()) emit_state(thread, trace::TouchState::off, g_touch.off_reason);
    return;
  }
  g_touch.sampled_faults.store(0, std::memory_order_relaxed);
  g_touch.missed_faults.store(0, std::memory_order_relaxed);
  g_touch.armed_threads.store(0, std::memory_order_relaxed);
  close_copied_events();
  if (has_new_seccomp_filter()) return stop(thread, kFilterInstalled);
  if (!is_trap_handler_in_place()) return stop(thread, "the program has replaced the SIGTRAP handler");
  if (const long error = arm(thread); error != 0) return stop(thread, reason_of(error));
  emit_state(thread, trace::TouchState::armed, {});
}

void touch_leave_thread(ThreadState& thread) noexcept {
  TouchThread* touch = thread.touch;
  if (touch == nullptr || trace::is_kernel_closed()) return;
  if (touch->generation == thread.generation) drop_event(*touch);
  touch->event_page = nullptr;
  if (!leave_signal_stack(touch->signal_stack)) return;
  thread.touch = nullptr;
  give_back_own_memory(thread, touch, sizeof(TouchThread));
}

bool touch_pause(ThreadState& thread) noexcept {
  TouchThread* touch = thread.touch;
  if (touch == nullptr || touch->generation != thread.generation) return false;
  const bool armed = touch->event_page != nullptr;
  touch->paused = true;
  drop_event(*touch);
  return armed;
}

void touch_resume(ThreadState& thread) noexcept {
  TouchThread* touch = thread.touch;
  if (touch == nullptr || touch->generation != thread.generation || !touch->paused) return;
  if (!is_trap_blocked()) touch_resume_after_handler(thread);
}

void touch_resume_after_handler(ThreadState& thread) noexcept {
  TouchThread* touch = thread.touch;
  if (touch == nullptr || touch->generation != thread.generation || trace::is_kernel_closed()) return;
  touch->paused = false;
  run_again(*touch);
}

void touch_signal_stack_changed(ThreadState& thread, const stack_t& set) noexcept {
  TouchThread* touch = thread.touch;
  if (touch == nullptr || touch->generation != thread.generation) return;
  if ((set.ss_flags & SS_DISABLE) != 0)
    take_up_signal_stack(touch->signal_stack);
  else
    adopt_signal_stack(touch->signal_stack, set);
  if (touch->signal_stack.unfit)
    drop_event(*touch);
  else if (touch->event_page == nullptr)
    run_again(*touch);
}

void touch_stack_removed(ThreadState& thread) noexcept {
  thread.touch->signal_stack.unfit = true;
  if (thread.touch->generation == thread.generation) drop_event(*thread.touch);
}

void touch_before_exec(ThreadState& thread) noexcept {
  if (!is_trap_shared()) return;
  touch_pause(thread);
  if (is_trap_blocked()) drop_own_pending_trap();
  leave_trap_to_exec(g_touch.armed_threads.load(std::memory_order_relaxed) != 0);
}

void touch_after_failed_exec(ThreadState& thread) noexcept {
  if (!is_trap_shared()) return;
  share_trap_again();
  touch_resume(thread);
}

void touch_before_filter(ThreadState& thread) noexcept {
  g_touch.counted_unfiltered = g_kernel_faults.counted.load(std::memory_order_relaxed);
  stop_kernel_faults();
  if (g_touch.wanted.load(std::memory_order_acquire)) {
    touch_pause(thread);
    g_touch.wanted_unfiltered = true;
    g_touch.wanted.store(false, std::memory_order_seq_cst);
    g_touch.off_reason = kFilterInstalled;
  }
  if (g_touch.armed_threads.load(std::memory_order_seq_cst) == 0) leave_trap_to_program();
}

void touch_after_failed_filter(ThreadState& thread) noexcept {
  const int saved_errno = errno;
  if (g_touch.wanted_unfiltered) g_touch.off_reason = {};
  take_trap_again();
  g_touch.wanted.store(g_touch.wanted_unfiltered, std::memory_order_release);
  if (g_touch.counted_unfiltered) start_kernel_faults(session().settings.touch_period_faults);
  touch_resume(thread);
  errno = saved_errno;
}

void touch_go_on(TouchThread& touch) noexcept {
  g_touch.sampled_faults.fetch_add(touch.period_faults, std::memory_order_relaxed);
  const std::uint32_t due = period_due();
  long error = 0;
  if (due != touch.period_faults)
    error = begin_period(touch, due);
  else if (!touch.steady) {
    error = open_event(touch, due);
    touch.steady = true;
  }
  // With the random period going on the weights would be wrong.
  if (error != 0) drop_event(touch);
}

std::uint32_t take_missed_faults() noexcept {
  return g_touch.missed_faults.load(std::memory_order_relaxed) == 0
             ? 0
             : g_touch.missed_faults.exchange(0, std::memory_order_relaxed);
}

void count_missed_faults(std::uint32_t faults) noexcept {
  g_touch.missed_faults.fetch_add(faults, std::memory_order_relaxed);
}

}  // namespace whyrss::shim
