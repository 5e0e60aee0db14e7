// SIGTRAP, shared with the program. The page-fault event needs it, and the kernel kills a process whose
// SIGTRAP from the kernel meets a default or ignored action: so our handler stays installed for good, and
// hands on what is not ours as the kernel would have delivered it to the program.
//
// What the program asks for is remembered and reported back (entry_signal.cc). Our handler is installed with its
// SA_RESTART, and with all signals blocked; its own handler runs with the mask that it chose. SA_NODEFER, SA_RESETHAND,
// SIG_IGN and SIG_DFL are played.
#pragma once

#include <signal.h>

#include <cstdint>

namespace whyrss::shim {

// What an event carries to its handler: that it is ours, and the faults that the sample stands for.
constexpr std::uint64_t event_cookie(std::uint32_t weight_faults) {
  return std::uint64_t{0x77687972} << 32 | weight_faults;  // "whyr"
}

// Once per image. False: the program ignores SIGTRAP from its parent on, which must stay so.
bool install_trap_handler() noexcept;

// The handler is installed, and the functions below stand for the kernel's.
bool is_trap_shared() noexcept;

// The program has not replaced our handler by a raw system call.
bool is_trap_handler_in_place() noexcept;

// sigaction(SIGTRAP, ...) as the program means it; `added_flags`: what libc adds to those that the program named.
inline constexpr int kRestorer = 0x04000000;  // SA_RESTORER, reported back by the kernel
int change_trap_action(const struct sigaction* next, struct sigaction* previous, int added_flags = kRestorer) noexcept;

// exec resets our handler, but an ignored signal stays ignored: puts the program's own SIG_IGN in place, when
// no thread is armed (the kernel would kill it). Undone after a failed exec.
void leave_trap_to_exec(bool any_armed) noexcept;
void share_trap_again() noexcept;

// No thread is armed, and none will be: the signal is the program's alone again. Undone by the other.
void leave_trap_to_program() noexcept;
void take_trap_again() noexcept;

// A SIGTRAP of ours that waits (it was blocked by a handler's mask) is taken away.
void drop_own_pending_trap() noexcept;

}  // namespace whyrss::shim
