// The seam between the entry points and the trace: one function per shape of event. The only caller of
// the pool and of the stack capture. All are safe in any thread, in signal handlers and before main;
// they keep errno, allocate nothing and do nothing while our own code runs below them.
// Order: an entry calls observe_release and observe_unmap before the real function and the others after
// it (trace_format.h says why).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/stack_capture.h"
#include "shim/thread_state.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// A block that a heap function returned and the fast path did not count; `requested` bytes. Large ones and the
// sampled of the others are logged.
void observe_allocate(const Caller& caller, const void* block, std::size_t requested) noexcept;
// Before the real release.
enum class Released : std::uint8_t {
  unlogged,  // the block was only counted
  followed,  // it had been logged, and now its release is
  compact,   // small, in exact mode: logged without looking whether its allocation was
};
Released observe_release(const void* block) noexcept;
// The realloc announced by observe_release(block) failed.
void observe_release_undone(const void* block, Released released) noexcept;

struct Mapping {
  const void* address;
  std::size_t size_bytes;
  int prot, flags, fd;
  std::uint64_t file_offset;
};
void observe_map(const Caller& caller, const Mapping& mapping) noexcept;
// unmap, protect, advise, break_moved (address = new break, size = old break).
void observe_range(const Caller& caller, trace::RecordKind kind, const void* address, std::size_t size_bytes,
                   std::int64_t argument) noexcept;
void observe_remap(const Caller& caller, const Mapping& before, const Mapping& after) noexcept;
// After mlock and its like; logs nothing, but a look at the end will be worth it.
void observe_locked(std::size_t size_bytes) noexcept;

// The kernel made `faults` pages of the range resident within a call, and in `weight_calls` calls like it.
void observe_kernel_faults(const Caller& caller, const void* address, std::size_t size_bytes, std::uint32_t faults,
                           std::uint32_t weight_calls) noexcept;

// In the parent: a child by fork (record kind fork), posix_spawn or vfork (spawn; pid 0 = not known).
void observe_child(const Caller& caller, trace::RecordKind kind, std::uint32_t pid) noexcept;
// About to replace the image; everything written so far is handed over.
void observe_exec(std::string_view program) noexcept;
void observe_exec_failed(std::string_view program) noexcept;
// What the program kept is about to be freed, or left: the reader gets a bounded moment for its last look, and looks no
// more on its own. Once each for the process and its interpreter; `what` of trace::Teardown. The end of a script asks
// for the look only, once a second at most.
void observe_teardown(std::int32_t what) noexcept;
// About to leave; the last look is taken where no teardown has been told a moment ago.
void observe_exit(int status) noexcept;

// The stack id of the pthread_create call, and the new thread's record.
std::uint32_t observe_thread_creation(const Caller& caller) noexcept;
void observe_thread_start(std::uint32_t creation_stack_id, const void* stack_pointer) noexcept;

void observe_mark(trace::MarkKind kind, std::string_view text) noexcept;
// What the allocator says about itself now.
void observe_allocator_stats(trace::StatsMoment moment) noexcept;
// Why something is off or missing.
void observe_note(std::string_view text) noexcept;

// The program is about to forbid itself system calls: what a later walk would have told is asked for now.
void last_walk_before_filter(ThreadState& thread) noexcept;

// Asks the reader for a page walk now and waits for it: until 0.5 s after the reader's last sign of life (more for
// large processes) and 2 s at most, or for `longest_ns` where that is more. False: it did not come, which is counted.
bool request_look(std::uint64_t longest_ns = 0) noexcept;

// What a stack is taken into; mapped at first use. The thread is entered, Busy held by the caller.
bool ensure_scratch(ThreadState& thread) noexcept;

// Memory of the shim itself (cause `whyrss`); the thread is entered and Busy held by the caller.
void report_own_memory(ThreadState& thread, const void* memory, std::size_t size_bytes) noexcept;
void give_back_own_memory(ThreadState& thread, void* memory, std::size_t size_bytes) noexcept;

}  // namespace whyrss::shim
