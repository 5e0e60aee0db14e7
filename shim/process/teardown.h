// The end of a process as the program meets it: main has returned, exit() was called, or the last thread ends. Then
// destructors and exit handlers free what the program kept, so the last walk comes before all of them.
//
// exit() is interposed, for all who call it by name. Return from main ends in libc's own exit(), past every hook: its
// first act is to run the destructors of the main thread's thread_local objects, the newest first, so one of them is
// ours, and stays the newest. No frame of ours ever stands below main or an exit handler. What calls libc's exit() from
// inside of libc in another thread (err(), error()) is met by the on_exit handler, which is the oldest and runs last.
#pragma once

#include "shim/events/thread_state.h"

namespace whyrss::shim {

// In the constructor, by the main thread. Libc allocates a list node of 32 bytes for it.
void watch_main_thread() noexcept;

// A thread_local object has got a destructor.
void keep_watch_newest() noexcept;

// The first call in a process does it, later ones nothing. Any thread, also in a signal handler.
void tear_down_process() noexcept;

// In the last destructor of its pthread keys: takes the process down where libc will, as no other thread is left.
void note_thread_end(const ThreadState& thread) noexcept;

}  // namespace whyrss::shim
