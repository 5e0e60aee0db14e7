// What a thread takes its stacks into, and what it remembers of the last ones.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "shim/events/event_order.h"
#include "shim/events/thread_state.h"
#include "shim/stacks/python_trail.h"
#include "shim/stacks/python_waiter.h"
#include "shim/stacks/stack_python.h"
#include "shim/stacks/stack_recall.h"
#include "shim/stacks/unwind_memo.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

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
  StackRecall* recall;                           // nullptr: none, see StackRecall
  std::uint32_t recall_wanted;                   // stacks that it could have learnt
  std::array<OrderedPage, kOrderedPages> pages;  // of event_order.h
  union {                                        // one after the other
    std::array<WalkedFrame, trace::kMaxNativeFrames> passed;
    std::array<WalkedPythonFrame, trace::kMaxPythonFrames> walked;
  };
  PythonMemo python;  // the Python frames that were taken last
  PythonTrail trail;  // where they were found
  WaiterMemo waiter;  // of a thread that runs no Python code
};
static_assert(sizeof(StackScratch) <= 160 * 1024);

// A thread's scratch, with the pages that shallow stacks use; nullptr where memory is short.
StackScratch* map_stack_scratch() noexcept;

// A thread's scratch is there, or mapped now. The thread is entered, Busy held by the caller.
bool ensure_scratch(ThreadState& thread) noexcept;

}  // namespace whyrss::shim
