// The program forbids itself system calls, or the time stamp counter: prctl(2), seccomp(2), also by syscall(2).
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>
#include <optional>

#include "shim/hooks/entry_allocate.h"
#include "shim/process/restriction.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"
#include "shim/trace/clock.h"

namespace whyrss::shim {
namespace {

using Effect = std::optional<Restriction>;

// Calls that the kernel refuses for what they say, as libraries make them to learn what it can do, restrict nothing.
Effect effect_of_prctl(long option, long mode, long filter) noexcept {
  if (option != PR_SET_SECCOMP) return std::nullopt;
  if (mode == SECCOMP_MODE_STRICT) return Restriction::strict;
  return mode == SECCOMP_MODE_FILTER && filter != 0 ? Effect(Restriction::filter) : std::nullopt;
}

Effect effect_of_seccomp(long operation, long flags, long filter) noexcept {
  if (operation == SECCOMP_SET_MODE_STRICT)
    return flags == 0 && filter == 0 ? Effect(Restriction::strict) : std::nullopt;
  return operation == SECCOMP_SET_MODE_FILTER && filter != 0 ? Effect(Restriction::filter) : std::nullopt;
}

// A positive number says with SECCOMP_FILTER_FLAG_TSYNC that no thread is filtered, with
// SECCOMP_FILTER_FLAG_NEW_LISTENER that all went well: it is taken for that, to be safe.
template <class Install>
auto restrict_by(Effect effect, Install install) noexcept {
  const bool begun = effect && begin_restriction(*effect);
  const auto result = install();
  if (!begun) return result;
  const int saved_errno = errno;
  if (result < 0)
    undo_restriction();
  else
    note_restriction();
  errno = saved_errno;
  return result;
}

void watch_counter(long option, long mode) noexcept {
  if (option == PR_SET_TSC && mode == PR_TSC_SIGSEGV) trace::leave_tsc();
}

}  // namespace

// syscall(SYS_seccomp, ...) and syscall(SYS_prctl, ...): sent here by entry_syscall.S.
extern "C" __attribute__((visibility("hidden"))) long whyrss_filter_syscall(long number, long a1, long a2, long a3,
                                                                            long a4, long a5, long a6) noexcept {
  const bool is_prctl = number == SYS_prctl;
  if (is_prctl) watch_counter(a1, a2);
  const long result = restrict_by(is_prctl ? effect_of_prctl(a1, a2, a3) : effect_of_seccomp(a1, a2, a3),
                                  [=] { return raw_syscall(number, a1, a2, a3, a4, a5, a6); });
  return libc_result(result);
}

}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY int prctl(int option, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, option);
  const auto a2 = va_arg(arguments, unsigned long);
  const auto a3 = va_arg(arguments, unsigned long);
  const auto a4 = va_arg(arguments, unsigned long);
  const auto a5 = va_arg(arguments, unsigned long);
  va_end(arguments);
  resolve_real();
  const auto mode = static_cast<long>(a2);
  watch_counter(option, mode);
  return restrict_by(effect_of_prctl(option, mode, static_cast<long>(a3)),
                     [=] { return real.prctl(option, a2, a3, a4, a5); });
}
