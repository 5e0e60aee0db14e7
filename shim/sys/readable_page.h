// Whether memory can be read, asked without reading it: a SIGSEGV in a foreign program is not ours to catch.
// No effect, no errno, async-signal-safe; some 0.1 us, 0.6 us for a page that is not there.
// Not process_vm_readv: it pins the page, and one that a fork made shared is copied first.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>

#include "shim/sys/raw_io.h"

namespace whyrss::shim {

inline constexpr std::uint64_t kPageBytes = 4096;

constexpr std::uint64_t page_of(std::uint64_t address) noexcept { return address & ~(kPageBytes - 1); }

// The kernel copies the signal set before it checks the operation, which does not exist: EINVAL says
// readable, EFAULT not. Source: sigprocmask(2), kernel/signal.c.
inline bool is_page_readable(std::uint64_t page) noexcept {
  return own_syscall(SYS_rt_sigprocmask, -1, static_cast<long>(page), 0, 8) == -EINVAL;
}

// Whether the word can be read and has this value, where it may be unmapped at any moment. A futex operation that
// compares, and then would wake and move no waiter: it reads as a load does. Source: futex(2), FUTEX_CMP_REQUEUE.
inline bool holds_word(const std::uint32_t* word, std::uint32_t value) noexcept {
  return own_syscall(SYS_futex, as_long(word), FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, as_long(word), value) == 0;
}

}  // namespace whyrss::shim
