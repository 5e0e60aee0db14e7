// The program forbids itself system calls. What of ours makes any beside the program's own, at moments that it does not
// choose, ends before: a filter may kill for them. (The events of the heap and of mappings map memory now and then.)
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>

#include "shim/entry_allocate.h"
#include "shim/observe.h"
#include "shim/raw_io.h"
#include "shim/real.h"
#include "shim/session.h"
#include "shim/thread_state.h"
#include "shim/touch_event.h"

namespace whyrss::shim {
namespace {

// From now on whatever the processes under the filter write needs no system call.
void reserve_before_filter() noexcept {
  const trace::PoolView pool = session().pool;
  if (!pool) return;
  const int saved_errno = errno;
  trace::add_chunks(pool, pool.header->chunk_count);
  trace::let_writers_reserve(false);
  errno = saved_errno;
}

template <class Install>
auto install_filter(Install install) noexcept {
  const bool ended = touch_before_filter(thread_state());
  reserve_before_filter();
  const auto result = install();
  if (!ended) return result;
  if (result < 0)
    touch_after_failed_filter(thread_state());
  else
    observe_note("the program has installed a seccomp filter: page faults are not followed any more");
  return result;
}

}  // namespace

// syscall(SYS_seccomp, ...) and syscall(SYS_prctl, ...): sent here by entry_syscall.S.
extern "C" __attribute__((visibility("hidden"))) long whyrss_filter_syscall(long number, long a1, long a2, long a3,
                                                                            long a4, long a5, long a6) noexcept {
  const auto call = [=] { return raw_syscall(number, a1, a2, a3, a4, a5, a6); };
  const bool installs =
      number == SYS_prctl ? a1 == PR_SET_SECCOMP : a1 == SECCOMP_SET_MODE_STRICT || a1 == SECCOMP_SET_MODE_FILTER;
  const long result = installs ? install_filter(call) : call();
  if (!is_raw_error(result)) return result;
  errno = static_cast<int>(-result);
  return -1;
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
  const auto call = [=] { return real.prctl(option, a2, a3, a4, a5); };
  return option == PR_SET_SECCOMP ? install_filter(call) : call();
}
