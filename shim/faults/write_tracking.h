// Tracking writes across fork: this process's userfaultfd, with which the collector protects pages from outside, so
// that the kernel remembers which of them were written (UFFD_FEATURE_WP_ASYNC, Linux 6.7). It is handed over through
// the socket that the pool names, and closed at once: two descriptors, for some 20 us. Nothing is protected here,
// nothing waits, nothing is tried again. The collector sets its features; until then it does nothing.
#pragma once

#include "shim/events/thread_state.h"

namespace whyrss::shim {

// Once per process and image: in the parent after its first fork, in a fork child before the program gets it back. The
// caller holds Busy. Not where no collector wants it, nor where a seccomp filter came since the collector's start,
// which might kill for a system call that it does not know. Why not is written as a note, once in a family.
void hand_off_uffd(ThreadState& thread) noexcept;

}  // namespace whyrss::shim
