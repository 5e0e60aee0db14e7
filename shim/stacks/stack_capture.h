// Where in the program an event happened: the native and Python frames of the calling thread, taken
// inside a hook, described to the reader once and referred to by a small id afterwards.
//
// Everything here runs inside malloc, mmap and page-fault signals of a foreign program: no locks, no
// allocation, plain loads only from memory that is known to be mapped, errno untouched. Any thread; one
// call at a time per thread (the caller holds Busy).
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/events/caller.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Once per image, before the first describe_stack: finds CPython, emits the PythonRecord.
void stacks_start(bool use_libunwind, const trace::Writer& writer, trace::Lease& lease) noexcept;

// The id of the caller's stack, kNoStack when it could not be stored. Emits what the reader does not
// know yet: ModuleRecord, CodeRecord, StackRecord.
std::uint32_t describe_stack(const Caller& caller, const trace::Writer& writer, trace::Lease& lease,
                             StackScratch& scratch) noexcept;

// Counts up when a stack with the same words may have another id: code was unloaded, ids start anew, Python appeared.
extern constinit std::atomic<std::uint64_t> g_stack_changes;
inline void outdate_stacks() noexcept { g_stack_changes.fetch_add(1, std::memory_order_acq_rel); }

// The id that describe_stack would return, where the stack is the one it took last; kNoStack: take it.
[[gnu::always_inline]] inline std::uint32_t same_stack(const Caller& caller, const StackScratch& scratch) noexcept {
  const SameStack& last = scratch.same;
  const std::uint64_t difference = (caller.ip ^ last.ip) | (caller.sp ^ last.sp) |
                                   ((caller.bp ^ last.bp) & last.bp_mask) |
                                   (g_stack_changes.load(std::memory_order_acquire) ^ last.changes);
  return difference == 0 && scratch.memo.still_holds() ? last.id : trace::kNoStack;
}

// The child goes on with its copy of the tables and ids, and tells the reader whose they were. It describes
// everything again when that cannot be said.
void stacks_after_fork_in_child(const trace::Writer& writer, trace::Lease& lease) noexcept;

// Around a dlclose: rules and modules of code that has gone are looked up again.
void stacks_before_dlclose() noexcept;
void stacks_after_dlclose() noexcept;

}  // namespace whyrss::shim
