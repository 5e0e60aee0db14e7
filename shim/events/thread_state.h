// What the shim keeps per thread: initial-exec TLS, so that it works before any constructor, in signal
// handlers and in threads we did not see start, at the cost of one %fs-relative load. Zero-initialised
// means "not entered yet": nothing left sends the first allocation of a thread to the slow path, which
// enters it (session.h). No destructor: a pthread key (session.cc) ends the thread's lease.
// Static TLS is scarce (thread stacks, dlopen): the size is asserted, big things live in `scratch`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/events/sampling_pace.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

struct StackScratch;  // stack_capture.h
struct TouchThread;   // touch_event.h

struct alignas(64) ThreadState {
  // Bytes that may be allocated before the slow path is taken: usable bytes where live bytes are counted page by
  // page (`left`), requested ones where they are not (`request_left`; UINT64_MAX: tracing is off). The other one is 0,
  // and both in exact mode.
  std::uint64_t left = 0;
  std::uint64_t request_left = 0;
  // The block that was counted last, so that an entry around the one that counted it does not count it again.
  const void* last_block = nullptr;
  // Counted, and now given to the real release, which may call an entry that must not count it again.
  const void* releasing = nullptr;
  // Since the last flush to the process slot; the bytes without armed - left - request_left.
  std::uint64_t small_allocations = 0;
  std::uint64_t small_allocated_bytes = 0;
  std::uint64_t small_releases = 0;
  std::uint64_t small_released_bytes = 0;  // usable; where live bytes are counted page by page
  // Its directory of the liveness table (heap/liveness.h); nullptr: it counts in the common one.
  std::atomic<std::uint64_t>* own_pages = nullptr;
  std::uint64_t armed = 0;              // what `left` or `request_left` began with
  std::uint64_t gap = 0;                // from there to the byte that is sampled next
  std::uint32_t gap_coarseness = 0;     // with which `gap` was drawn
  std::uint32_t exit_rounds = 0;        // of the pthread key destructor
  SamplingPace pace;                    // of this thread's samples
  SamplingPace large_pace;              // of its records of blocks that may be counted instead
  std::uint64_t random = 0;             // of sampling.h
  std::uint64_t read_random = 0;        // of kernel_faults.h, as what follows
  std::uint64_t reported_faults = 0;    // minor faults that records have reported
  std::uint64_t last_vector_bytes = 0;  // that readv or recvmsg filled

  // Stack address of the guard while our own code runs (guard.h), 0: it does not.
  std::uintptr_t busy_sp = 0;
  // The heap entry that runs now, so that an entry called by it (operator new -> malloc) takes the stack of
  // its caller: its stack address, the stack slot and value of its return address, its caller's frame pointer.
  std::uintptr_t outer_sp = 0;
  const std::uintptr_t* outer_return_slot = nullptr;
  std::uintptr_t outer_return = 0;
  std::uintptr_t outer_bp = 0;

  trace::Writer writer{};
  trace::Lease lease{};
  // Of observe/block_event.h: the allocation whose record the last release took back; block 0: it took none.
  struct TakenBack {
    std::uint64_t block = 0, size_bytes = 0, sampled_bytes = 0;
    std::uint32_t stack_id = 0;
    trace::RecordKind kind{};
  } taken_back;
  std::uint64_t generation = 0;     // of the control page that `writer` and `lease` belong to
  StackScratch* scratch = nullptr;  // mapped, zero-filled; nullptr: no stacks in this thread
  TouchThread* touch = nullptr;     // mapped; nullptr: no page-fault event in this thread
  // Of event_order.h: events since the start; stamps that waited for all loads; g_order_changes and the reader's walk
  // as seen last.
  std::uint32_t unstamped = 0, fences = 0, seen_changes = 0, seen_walk = 0;
  const std::atomic<std::uint32_t>* walk = nullptr;         // of the process
  trace::MapOrigin map_origin = trace::MapOrigin::program;  // who asks for the mappings made now
  bool fast = false;                                        // may try exact_fast_path.h: what does not change is so
  bool ended = false;                                       // sealed for good; later events seal at once
};

static_assert(sizeof(ThreadState) < 512, "static TLS is scarce");

extern constinit thread_local ThreadState t_thread_state;

inline ThreadState& thread_state() noexcept { return t_thread_state; }

}  // namespace whyrss::shim
