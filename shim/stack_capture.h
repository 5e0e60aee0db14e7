// Where in the program an event happened: the native and Python frames of the calling thread, taken
// inside a hook, described to the reader once and referred to by a small id afterwards.
//
// Everything here runs inside malloc, mmap and page-fault signals of a foreign program: no locks, no
// allocation, plain loads only from memory that is known to be mapped, errno untouched. Any thread; one
// call at a time per thread (the caller holds Busy).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "shim/event_order.h"
#include "shim/stack_bounds.h"
#include "shim/stack_python.h"
#include "shim/stack_recall.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"
#include "shim/unwind_memo.h"

namespace whyrss::shim {

// Register state of the program: right after the call of our hook returns, or where a signal stopped it.
struct Caller {
  std::uint64_t ip, sp, bp;
  // ip is the instruction that was stopped, not a return address. The program may then be in the middle of
  // anything: of a frame's push, of CPython's own bookkeeping.
  bool interrupted = false;
};

// In an entry point (the shim is built with frame pointers: [rbp] = caller's rbp, [rbp + 8] = return
// address, rbp + 16 = caller's rsp).
[[gnu::always_inline]] inline Caller caller_here() noexcept {
  const auto* frame = static_cast<const std::uint64_t*>(__builtin_frame_address(0));
  return {.ip = frame[1], .sp = reinterpret_cast<std::uint64_t>(frame) + 16, .bp = frame[0]};
}

// The stack that was described last, to be recognised by a few compares. Not where Python frames may be on it.
struct SameStack {
  std::uint64_t ip = 0, sp = 0;       // of its caller; 0: none is known
  std::uint64_t bp = 0, bp_mask = 0;  // which bits of RBP matter: all or none
  std::uint64_t changes = 0;          // g_stack_changes before it was taken
  std::uint32_t id = 0;

  void forget() noexcept {
    ip = 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
};

// Per thread, zero-filled, too large for foreign stacks. Survives between calls.
struct StackScratch {
  std::array<std::uint64_t, trace::kMaxNativeFrames> addresses;  // of libunwind
  StackMemo memo;                                                // the stack that was taken last
  KnownStack known_stack;
  std::uint64_t last_hash;
  std::uint32_t last_id, last_epoch;
  SameStack same;
  StackRecall* recall;                           // nullptr: none, see recalled_stack
  std::uint32_t recall_wanted;                   // stacks that it could have learnt
  std::array<OrderedPage, kOrderedPages> pages;  // of event_order.h
  union {                                        // one after the other
    std::array<WalkedFrame, trace::kMaxNativeFrames> passed;
    std::array<WalkedPythonFrame, trace::kMaxPythonFrames> walked;
  };
  PythonMemo python;  // the Python frames that were taken last
};
static_assert(sizeof(StackScratch) <= 72 * 1024);

// A thread's scratch, with the pages that shallow stacks use; nullptr where memory is short.
StackScratch* map_stack_scratch() noexcept;

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

// The same, of any stack that the thread took before.
[[gnu::always_inline]] inline std::uint32_t recalled_stack(const Caller& caller, StackScratch& scratch) noexcept {
  if (scratch.recall == nullptr) return trace::kNoStack;
  return scratch.recall->find(
      {.ip = caller.ip, .sp = caller.sp, .bp = caller.bp, .changes = g_stack_changes.load(std::memory_order_acquire)});
}

// The child goes on with its copy of the tables and ids, and tells the reader whose they were. It describes
// everything again when that cannot be said.
void stacks_after_fork_in_child(const trace::Writer& writer, trace::Lease& lease) noexcept;

// Around a dlclose: rules and modules of code that has gone are looked up again.
void stacks_before_dlclose() noexcept;
void stacks_after_dlclose() noexcept;

}  // namespace whyrss::shim
