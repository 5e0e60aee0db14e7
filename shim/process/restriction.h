// The program restricts itself: a seccomp filter, strict mode, or no time stamp counter. Before that is in force,
// everything of ours stops that it could kill for (trace/own_calls.h, trace/clock.h): events go on where they need no
// system call, with memory that was set aside before. Also in other threads: the program may have the kernel filter
// them too, and those that they create inherit it.
#pragma once

#include <cstdint>

namespace whyrss::shim {

enum class Restriction : std::uint8_t {
  filter,  // of system calls
  strict,  // read, write, the thread's exit and the return from a signal; the counter is forbidden with it
};

// Before a call that restricts the program so. True: something ended by it, and one of the next two follows.
bool begin_restriction(Restriction restriction) noexcept;
void undo_restriction() noexcept;  // the call failed
void note_restriction() noexcept;  // it did not: notes it, if it was not noted before

}  // namespace whyrss::shim
