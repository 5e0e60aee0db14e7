// What the allocator says about itself (mallinfo2, mallctl, MallocExtension, mi_process_info: whichever the library
// that serves malloc has), beside what we count, as AllocatorStats records.
//
// glibc's call follows the lists of free chunks through the program's memory: a program that has written over them, and
// would have ended before it met them, would crash in it. So mallinfo2 is called at the start, where the program asks
// for a snapshot, and elsewhere with allocator_stats=on only; the others read counters of their own.
//
// Such a call takes the allocator's locks. It is made only where this thread can hold none of them: the stack is known
// to its end, no signal interrupted anything on it, the allocator has no frame on it, and the process was not born by
// a fork that leaves locks as they were. Otherwise it is left out, and a note says so.
// The caller of everything here holds Busy and has entered the thread; Busy is laid down during the call, so that a
// mapping that the allocator makes then is seen. errno is kept.
#pragma once

#include "shim/events/caller.h"
#include "shim/events/thread_state.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// In the constructor, after the unwinder's start: looks up what the allocator has, and asks for the first time.
void start_allocator_stats(ThreadState& thread) noexcept;

// Asks now. A second call for `end` in one process does nothing.
void report_allocator_stats(ThreadState& thread, trace::StatsMoment moment) noexcept;

// After an event in a slow path: asks when the reader wants to know, unless an earlier call took long.
[[gnu::noinline]] void serve_stats_request(ThreadState& thread) noexcept;

// Why an allocator whose code lies in [start, end) must not be called now, nullptr: it may be. `here` is in the shim.
const char* danger_of_call(ThreadState& thread, const Caller& here, std::uint64_t start, std::uint64_t end) noexcept;

// Whether locks of the allocator may be held for good, as in the child of a clone() of a process with several threads:
// fork() takes and frees them around it.
[[nodiscard]] bool allocator_may_be_locked() noexcept;
void set_allocator_may_be_locked(bool may_be) noexcept;

// In a fork child, while `thread` still has its parent's slot: no request is served here yet.
void reset_allocator_stats(const ThreadState& thread) noexcept;

}  // namespace whyrss::shim
