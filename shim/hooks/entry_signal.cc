// Signal actions and masks, as far as they concern SIGTRAP: the program sees what it has set, whether the
// page-fault event uses the signal beside it or not (touch_signal.h). Everything else is forwarded.
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstring>

#include "shim/events/guard.h"
#include "shim/events/session_state.h"
#include "shim/faults/touch_event.h"
#include "shim/faults/touch_signal.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/process/python_end.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/readable_page.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

using Handler = void (*)(int);

// Handlers on an alternate stack, to whose mask we have added SIGTRAP: the stack may have room for one
// signal frame only, and a fault in such a handler would bring a second one.
constinit std::atomic<std::uint64_t> g_shielded{0};

bool wants_shield(const struct sigaction& action) noexcept {
  const bool handled =
      (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
  return handled && (action.sa_flags & SA_ONSTACK) != 0 && sigismember(&action.sa_mask, SIGTRAP) == 0;
}

int change_other_action(int signal, const struct sigaction* next, struct sigaction* previous) noexcept {
  if (signal <= 0 || signal > 64) return real.sigaction(signal, next, previous);
  const std::uint64_t bit = std::uint64_t{1} << (signal - 1);
  const bool was_shielded = (g_shielded.load(std::memory_order_relaxed) & bit) != 0;
  int result = 0;
  if (next == nullptr) {
    result = real.sigaction(signal, nullptr, previous);
  } else {
    struct sigaction installed = *next;
    const bool shield = is_trap_shared() && wants_shield(*next);
    if (shield) sigaddset(&installed.sa_mask, SIGTRAP);
    result = real.sigaction(signal, &installed, previous);
    // A vfork child's actions are its own.
    if (result == 0 && shield != was_shielded && !is_vfork_child()) g_shielded.fetch_xor(bit);
  }
  if (result == 0 && previous != nullptr && was_shielded) sigdelset(&previous->sa_mask, SIGTRAP);
  return result;
}

int change_action(int signal, const struct sigaction* next, struct sigaction* previous) noexcept {
  resolve_real();
  note_finalization();
  if (signal == SIGTRAP && is_trap_shared()) return change_trap_action(next, previous);
  // Actions that were shielded before SIGTRAP was left to the program are still reported as the program set them.
  if (signal != SIGTRAP && (is_trap_shared() || g_shielded.load(std::memory_order_relaxed) != 0))
    return change_other_action(signal, next, previous);
  return real.sigaction(signal, next, previous);
}

Handler set_trap_handler(Handler handler, int flags, bool masks_itself) noexcept {
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  struct sigaction next {};
  struct sigaction previous {};
  next.sa_handler = handler;
  next.sa_flags = flags;
  sigemptyset(&next.sa_mask);
  if (masks_itself) sigaddset(&next.sa_mask, SIGTRAP);
  return change_trap_action(&next, &previous) == 0 ? previous.sa_handler : SIG_ERR;
}

bool is_shared_trap(int signal) noexcept {
  resolve_real();
  return signal == SIGTRAP && is_trap_shared();
}

using ChangeMask = int (*)(int, const sigset_t*, sigset_t*);

// While SIGTRAP is blocked there is no event: block after it has gone, and bring it back after unblocking.
int change_mask(ChangeMask change, int how, const sigset_t* set, sigset_t* previous) noexcept {
  ThreadState& thread = thread_state();
  const TouchThread* touch = thread.touch;
  if (touch == nullptr || set == nullptr) return change(how, set, previous);
  const bool named = sigismember(set, SIGTRAP) == 1;
  const bool blocks = named && how != SIG_UNBLOCK;
  const bool unblocks = how == SIG_SETMASK ? !named : named && how == SIG_UNBLOCK;
  // A vfork child has a mask of its own, and no event.
  const bool concerns = (blocks && !touch->paused) || (unblocks && touch->paused);
  if (!concerns || is_vfork_child()) return change(how, set, previous);
  if (blocks) touch_pause(thread);
  const int result = change(how, set, previous);
  if (unblocks || result != 0) {
    const int saved_errno = errno;
    touch_resume(thread);
    errno = saved_errno;
  }
  return result;
}

// The kernel's struct sigaction (asm/signal.h), and the size of its signal sets.
struct KernelAction {
  std::uint64_t handler, flags, restorer, mask;
};
constexpr long kKernelSetBytes = 8;

bool is_readable(const void* address, std::size_t size_bytes) noexcept {
  const auto start = reinterpret_cast<std::uint64_t>(address);
  return is_page_readable(page_of(start)) && is_page_readable(page_of(start + size_bytes - 1));
}

// As sigprocmask(). A signal set of libc begins with the kernel's.
int change_mask_by_kernel(int how, const sigset_t* set, sigset_t* previous) noexcept {
  return static_cast<int>(
      libc_result(raw_syscall(SYS_rt_sigprocmask, how, as_long(set), as_long(previous), kKernelSetBytes)));
}

// rt_sigaction(SIGTRAP, ...) as the program means it. The memory at `previous` is known to be writable.
int change_trap_by_kernel(const KernelAction* next, KernelAction* previous) noexcept {
  struct sigaction wanted {};
  struct sigaction before {};
  if (next != nullptr) {
    wanted.sa_handler = reinterpret_cast<Handler>(next->handler);
    wanted.sa_flags = static_cast<int>(next->flags);
    wanted.sa_restorer = reinterpret_cast<void (*)()>(next->restorer);
    std::memcpy(&wanted.sa_mask, &next->mask, sizeof(next->mask));
  }
  const int result = change_trap_action(next != nullptr ? &wanted : nullptr, &before, 0);
  if (result != 0 || previous == nullptr) return result;
  *previous = {.handler = reinterpret_cast<std::uint64_t>(before.sa_handler),
               .flags = static_cast<std::uint32_t>(before.sa_flags),
               .restorer = reinterpret_cast<std::uint64_t>(before.sa_restorer),
               .mask = 0};
  std::memcpy(&previous->mask, &before.sa_mask, sizeof(previous->mask));
  return 0;
}

}  // namespace

// syscall(SYS_rt_sigaction, ...) and syscall(SYS_rt_sigprocmask, ...): sent here by entry_syscall.S. Chromium takes all
// handlers from the processes that it forks so; a sample that met the default action would end them.
extern "C" __attribute__((visibility("hidden"))) long whyrss_signal_syscall(long number, long a1, long a2, long a3,
                                                                            long a4, long a5, long a6) noexcept {
  resolve_real();
  const bool is_action = number == SYS_rt_sigaction;
  const auto* next = reinterpret_cast<const void*>(a2);
  const std::size_t next_bytes = is_action ? sizeof(KernelAction) : kKernelSetBytes;
  const bool is_valid = a4 == kKernelSetBytes && (next == nullptr || is_readable(next, next_bytes));
  if (!is_valid || !is_trap_shared() || (is_action && a1 != SIGTRAP))
    return libc_result(raw_syscall(number, a1, a2, a3, a4, a5, a6));
  if (!is_action)
    return change_mask(change_mask_by_kernel, static_cast<int>(a1), static_cast<const sigset_t*>(next),
                       reinterpret_cast<sigset_t*>(a3));
  // What it would say of ours is written over; where it cannot write, nothing is changed.
  if (const long asked = raw_syscall(number, a1, 0, a3, a4); a3 != 0 && is_raw_error(asked)) return libc_result(asked);
  return change_trap_by_kernel(static_cast<const KernelAction*>(next), reinterpret_cast<KernelAction*>(a3));
}

}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY int sigaction(int signal, const struct sigaction* next, struct sigaction* previous) noexcept {
  return change_action(signal, next, previous);
}

// Its other name, which libc exports too.
// NOLINTNEXTLINE(readability-identifier-naming)
WHYRSS_ENTRY int __sigaction(int signal, const struct sigaction* next, struct sigaction* previous) noexcept {
  return change_action(signal, next, previous);
}

WHYRSS_ENTRY Handler signal(int number, Handler handler) noexcept {
  return is_shared_trap(number) ? set_trap_handler(handler, SA_RESTART, true) : real.signal(number, handler);
}

WHYRSS_ENTRY Handler ssignal(int number, Handler handler) noexcept {
  return is_shared_trap(number) ? set_trap_handler(handler, SA_RESTART, true) : real.signal(number, handler);
}

WHYRSS_ENTRY Handler bsd_signal(int number, Handler handler) noexcept {
  return is_shared_trap(number) ? set_trap_handler(handler, SA_RESTART, true) : real.signal(number, handler);
}

WHYRSS_ENTRY Handler sysv_signal(int number, Handler handler) noexcept {
  return is_shared_trap(number) ? set_trap_handler(handler, static_cast<int>(SA_RESETHAND | SA_NODEFER), false)
                                : real.sysv_signal(number, handler);
}

// NOLINTNEXTLINE(readability-identifier-naming)
WHYRSS_ENTRY Handler __sysv_signal(int number, Handler handler) noexcept {
  return is_shared_trap(number) ? set_trap_handler(handler, static_cast<int>(SA_RESETHAND | SA_NODEFER), false)
                                : real.sysv_signal(number, handler);
}

WHYRSS_ENTRY int sigignore(int number) noexcept {
  if (!is_shared_trap(number)) return real.sigignore(number);
  return set_trap_handler(SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

WHYRSS_ENTRY int sigprocmask(int how, const sigset_t* set, sigset_t* previous) noexcept {
  resolve_real();
  return change_mask(real.sigprocmask, how, set, previous);
}

WHYRSS_ENTRY int pthread_sigmask(int how, const sigset_t* set, sigset_t* previous) noexcept {
  resolve_real();
  if (real.pthread_sigmask == nullptr) resolve_libc_again();
  return change_mask(real.pthread_sigmask, how, set, previous);
}

// Where the stack in place is ours, the program has set none, and the call reports none. Its new one may be too small
// for a signal of ours: none may come from the call on until that is known.
WHYRSS_ENTRY int sigaltstack(const stack_t* next, stack_t* previous) noexcept {
  resolve_real();
  ThreadState& thread = thread_state();
  TouchThread* touch = thread.touch;
  if (touch == nullptr) return real.sigaltstack(next, previous);
  const bool changes = next != nullptr && !is_vfork_child();
  if (changes) touch_pause(thread);
  const int result = real.sigaltstack(next, previous);
  const int saved_errno = errno;
  if (result == 0 && previous != nullptr && is_own_stack(touch->signal_stack, previous->ss_sp))
    *previous = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  if (result == 0 && changes) touch_signal_stack_changed(thread, *next);
  if (changes) touch_resume(thread);
  errno = saved_errno;
  return result;
}
