#include "shim/faults/touch_signal.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "shim/events/caller.h"
#include "shim/events/emit.h"
#include "shim/events/guard.h"
#include "shim/events/session_state.h"
#include "shim/faults/touch_event.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/stack_capture.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

// siginfo of a perf event with sigtrap, which libc's headers do not name (asm-generic/siginfo.h).
struct PerfSignal {
  std::int32_t signal, error, code, padding;
  std::uint64_t address, data;
  std::uint32_t type, flags;
};
constexpr int kTrapPerf = 6;
constexpr std::uint32_t kAsynchronous = 1;  // SIGTRAP was blocked: delivered later, somewhere else

// Actions that the program has set, the newest at `g_current`. The handler may run at any moment, also in the
// middle of a change: a slot is written before it is shown, and is written again 15 changes later.
constinit std::array<struct sigaction, 16> g_actions{};
constinit std::atomic<std::uint32_t> g_next{0}, g_current{0};
constinit std::atomic<bool> g_installed{false};

const struct sigaction& program_action() noexcept {
  return g_actions[g_current.load(std::memory_order_acquire) % g_actions.size()];
}

void remember_action(const struct sigaction& action) noexcept {
  const std::uint32_t slot = g_next.fetch_add(1, std::memory_order_relaxed) + 1;
  g_actions[slot % g_actions.size()] = action;
  g_current.store(slot, std::memory_order_release);
}

PerfSignal perf_signal(const siginfo_t* info) noexcept {
  PerfSignal signal;
  std::memcpy(&signal, info, sizeof(signal));
  return signal;
}

bool is_ours(const PerfSignal& signal) noexcept {
  return signal.code == kTrapPerf && signal.data >> 32 == event_cookie(0) >> 32;
}

bool is_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

std::uint32_t stack_of(const ucontext_t& context, bool on_own_stack, ThreadState& thread) noexcept {
  if (!session().stacks_ready.load(std::memory_order_acquire) || thread.scratch == nullptr) return trace::kNoStack;
  if (on_own_stack && session().settings.use_libunwind) return trace::kNoStack;  // it begins with our frames
  const auto& registers = context.uc_mcontext.gregs;
  const Caller caller{.ip = static_cast<std::uint64_t>(registers[REG_RIP]),
                      .sp = static_cast<std::uint64_t>(registers[REG_RSP]),
                      .bp = static_cast<std::uint64_t>(registers[REG_RBP]),
                      .interrupted = true};
  return describe_stack(caller, thread.writer, thread.lease, *thread.scratch);
}

struct Sample {
  ThreadState& thread;
  const PerfSignal& signal;
  const ucontext_t& context;
  bool on_own_stack;
};

void record_sample(void* argument) noexcept {
  const Sample& sample = *static_cast<const Sample*>(argument);
  const std::uint32_t stack_id = stack_of(sample.context, sample.on_own_stack, sample.thread);
  const std::uint32_t collecting = python_is_collecting() ? trace::TouchRecord::kCollecting : 0;
  emit(sample.thread, trace::RecordKind::touch,
       trace::TouchRecord{.header = {},
                          .address = sample.signal.address,
                          .weight_faults = static_cast<std::uint32_t>(sample.signal.data) | collecting,
                          .missed_faults = take_missed_faults(),
                          .stack_id = stack_id,
                          .tid = sample.thread.writer.tid});
  touch_go_on(*sample.thread.touch);
}

// On a stack of the program there may be room for the kernel's frame and little more. The interrupted code is not on
// ours then, but where a handler of the program runs there still, after it has set another.
bool has_own_stack_to_spare(const ucontext_t& context, const SignalStack& own) noexcept {
  const stack_t& stack = context.uc_stack;
  const auto sp = static_cast<std::uint64_t>(context.uc_mcontext.gregs[REG_RSP]);
  const bool on_ours = sp - reinterpret_cast<std::uint64_t>(own.stack) <= sizeof(own.stack);
  return (stack.ss_flags & SS_DISABLE) == 0 && stack.ss_sp != own.stack && !on_ours;
}

// Nothing here maps memory or enters the thread: that was done when the event was armed. The guard is taken on the
// stack of the handler, by which it is known.
void take_sample(const PerfSignal& signal, const ucontext_t& context) noexcept {
  const auto weight_faults = static_cast<std::uint32_t>(signal.data);
  if (trace::is_kernel_closed())
    return count_missed_faults(weight_faults);  // of another thread: its event is there yet
  ThreadState& thread = thread_state();
  const Busy busy(thread);
  TouchThread* touch = thread.touch;
  if (touch == nullptr) return;
  // Not taken: our own code touched the page, and runs on below.
  const bool current = busy.taken() && session().phase.load(std::memory_order_acquire) == Phase::live &&
                       thread.generation == touch->generation && !thread.ended &&
                       session().control->generation.load(std::memory_order_acquire) == thread.generation;
  if (!current || (signal.flags & kAsynchronous) != 0) {
    count_missed_faults(weight_faults);
    if (busy.taken() && touch->event_page != nullptr) touch_go_on(*touch);
    return;
  }
  Sample sample{.thread = thread,
                .signal = signal,
                .context = context,
                .on_own_stack = has_own_stack_to_spare(context, touch->signal_stack)};
  if (sample.on_own_stack)
    call_on_own_stack(touch->signal_stack, record_sample, &sample);
  else
    record_sample(&sample);
}

void set_kernel_action(const struct sigaction& action) noexcept { real.sigaction(SIGTRAP, &action, nullptr); }

// As the default action ends the process: same status, with a core where cores are wanted. These calls are the
// program's: the kernel would have made an end without.
void die_of_trap(const siginfo_t& info, bool from_kernel) noexcept {
  struct sigaction before {};
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;
  real.sigaction(SIGTRAP, &fatal, &before);
  const std::uint64_t trap = std::uint64_t{1} << (SIGTRAP - 1);
  const long pid = raw_syscall(SYS_getpid);
  const long thread = raw_syscall(SYS_gettid);
  raw_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, as_long(&trap), 0, sizeof(trap));
  if (from_kernel) __asm__ volatile("int3");  // forced: a default action of PID 1 does not save it
  raw_syscall(SYS_rt_tgsigqueueinfo, pid, thread, SIGTRAP, as_long(&info));
  raw_syscall(SYS_tgkill, pid, thread, SIGTRAP);
  set_kernel_action(before);  // PID 1 of a container lives on
}

// The kernel has blocked all signals for us: the program's handler runs with those that it asked for.
void block_as_for(const struct sigaction& action, const ucontext_t& context) noexcept {
  std::uint64_t before = 0;
  std::uint64_t asked = 0;
  std::memcpy(&before, &context.uc_sigmask, sizeof before);
  std::memcpy(&asked, &action.sa_mask, sizeof asked);
  const std::uint64_t itself = (action.sa_flags & SA_NODEFER) != 0 ? 0 : std::uint64_t{1} << (SIGTRAP - 1);
  const std::uint64_t blocked = before | asked | itself;
  own_syscall(SYS_rt_sigprocmask, SIG_SETMASK, as_long(&blocked), 0, sizeof blocked);
}

void pass_on(int number, siginfo_t* info, void* context) noexcept {
  const struct sigaction action = program_action();
  const bool from_kernel = info->si_code > 0;  // int3, a hardware breakpoint: cannot be ignored
  if (!is_handler(action)) {
    if (action.sa_handler == SIG_DFL || from_kernel) die_of_trap(*info, from_kernel);
    return;
  }
  if ((action.sa_flags & SA_RESETHAND) != 0) {
    struct sigaction once = action;
    once.sa_handler = SIG_DFL;
    once.sa_flags &= ~SA_SIGINFO;
    remember_action(once);
  }
  // The handler runs with SIGTRAP blocked: one of ours that waited would swallow the next of the program's.
  ThreadState& thread = thread_state();
  const bool paused = touch_pause(thread);
  block_as_for(action, *static_cast<const ucontext_t*>(context));
  if ((action.sa_flags & SA_SIGINFO) != 0)
    action.sa_sigaction(number, info, context);
  else
    action.sa_handler(number);
  if (paused) touch_resume_after_handler(thread);
}

void on_trap(int number, siginfo_t* info, void* context) noexcept {
  const PerfSignal signal = perf_signal(info);
  if (!is_ours(signal)) return pass_on(number, info, context);
  const int saved_errno = errno;
  take_sample(signal, *static_cast<const ucontext_t*>(context));
  errno = saved_errno;
}

// Our handler, with all signals blocked: its stack is one for the thread.
struct sigaction shared_action(const struct sigaction& program) noexcept {
  struct sigaction action {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (is_handler(program) ? program.sa_flags & SA_RESTART : SA_RESTART);
  std::memset(&action.sa_mask, 0xff, sizeof action.sa_mask);
  return action;
}

}  // namespace

bool install_trap_handler() noexcept {
  struct sigaction before {};
  if (real.sigaction == nullptr || real.sigaction(SIGTRAP, nullptr, &before) != 0) return false;
  if (before.sa_handler == SIG_IGN && (before.sa_flags & SA_SIGINFO) == 0) return false;
  remember_action(before);
  const struct sigaction ours = shared_action(before);
  if (real.sigaction(SIGTRAP, &ours, nullptr) != 0) return false;
  g_installed.store(true, std::memory_order_release);
  return true;
}

bool is_trap_shared() noexcept { return g_installed.load(std::memory_order_acquire); }

bool is_trap_handler_in_place() noexcept {
  // The kernel's struct: handler, flags, restorer, mask.
  std::array<std::uint64_t, 4> action{};
  if (is_raw_error(own_syscall(SYS_rt_sigaction, SIGTRAP, 0, as_long(action.data()), 8))) return false;
  return action[0] == reinterpret_cast<std::uint64_t>(&on_trap);
}

int change_trap_action(const struct sigaction* next, struct sigaction* previous, int added_flags) noexcept {
  // A vfork child has no event, and an action of its own beside the memory of its parent.
  if (next != nullptr && is_vfork_child()) {
    if (previous != nullptr) *previous = program_action();
    return real.sigaction(SIGTRAP, next, nullptr);
  }
  const struct sigaction before = program_action();
  if (next != nullptr) {
    struct sigaction wanted = *next;
    const struct sigaction ours = shared_action(wanted);
    wanted.sa_flags |= added_flags;
    sigdelset(&wanted.sa_mask, SIGKILL);
    sigdelset(&wanted.sa_mask, SIGSTOP);
    remember_action(wanted);
    if (const int result = real.sigaction(SIGTRAP, &ours, nullptr); result != 0) return result;
  }
  if (previous != nullptr) *previous = before;
  return 0;
}

void leave_trap_to_exec(bool any_armed) noexcept {
  const struct sigaction& action = program_action();
  if (!any_armed && !is_handler(action) && action.sa_handler == SIG_IGN) real.sigaction(SIGTRAP, &action, nullptr);
}

void share_trap_again() noexcept {
  const struct sigaction ours = shared_action(program_action());
  real.sigaction(SIGTRAP, &ours, nullptr);
}

void leave_trap_to_program() noexcept {
  if (!is_trap_shared()) return;
  g_installed.store(false, std::memory_order_release);
  const struct sigaction action = program_action();
  set_kernel_action(action);
}

void take_trap_again() noexcept {
  if (is_trap_shared() || g_next.load(std::memory_order_relaxed) == 0) return;
  install_trap_handler();
}

void drop_own_pending_trap() noexcept {
  const std::uint64_t trap = std::uint64_t{1} << (SIGTRAP - 1);
  std::uint64_t pending = 0;
  own_syscall(SYS_rt_sigpending, as_long(&pending), sizeof(pending));
  if ((pending & trap) == 0) return;
  siginfo_t info{};
  const timespec now{};
  const long got = own_syscall(SYS_rt_sigtimedwait, as_long(&trap), as_long(&info), as_long(&now), sizeof(trap));
  if (got != SIGTRAP || is_ours(perf_signal(&info))) return;
  own_syscall(SYS_rt_tgsigqueueinfo, own_syscall(SYS_getpid), own_syscall(SYS_gettid), SIGTRAP, as_long(&info));
}

}  // namespace whyrss::shim
