// The Python side of a stack: finding CPython in this process, walking its frames with plain loads,
// describing code objects once. Offsets by version in python_tables.h.
// Source of layouts and rules: CPython's Include/internal headers, per minor version.
#pragma once

#include <cstdint>
#include <span>

#include "shim/stacks/python_trail.h"
#include "shim/stacks/stack_python.h"
#include "shim/stacks/unwind_rules.h"

namespace whyrss::shim {

class CopiedReader;  // copied_memory.h

// Looks for an interpreter (constructor time: exe and needed libraries are relocated). Emits the
// PythonRecord when there is one. Wraps PyCode_Type.tp_dealloc and the arena allocator.
void python_start(const trace::Writer& writer, trace::Lease& lease) noexcept;

// A new stack goes through this image: it may be a libpython that came by dlopen.
void python_may_be_in(const LoadedImage& image) noexcept;
// Then looks for the interpreter there, without a lock. Never in a signal handler: it has much to do.
void python_start_late(const trace::Writer& writer, trace::Lease& lease) noexcept;
// Such a library stays from its first dlclose on: we call it.
void python_before_dlclose() noexcept;

struct PythonWalk {
  std::uint16_t count = 0;           // of the frames walked
  const PythonHop* met = nullptr;    // what they were called from is as remembered from here on
  bool truncated = false;            // more frames than room
  bool torn = false;                 // the chain did not end as it should
  bool whole = false;                // all of it was walked, or what was not is known: a trail may remember it
  bool unknown = false;              // the thread could not be asked
  const std::byte* state = nullptr;  // of the thread; nullptr: it has none
};

// How the interpreter's structures are read.
enum class Access : std::uint8_t {
  direct,  // from hooks, where they are consistent: plain loads
  probed,  // from signal handlers, where a pointer may lead anywhere: each page is known to be readable first
};

// False: no interpreter is known, and none is to be looked for.
bool may_have_python() noexcept;
// One is known, and none is to be looked for.
bool is_python_known() noexcept;

// The calling thread's frames, innermost first; count 0 without a thread state. With a `trail` only up to where it is
// met: its caller has it remember the walk or forget.
PythonWalk walk_python(std::span<WalkedPythonFrame> frames, Access access, PythonTrail* trail = nullptr) noexcept;

// pthread_self(), from the thread control block.
inline std::uintptr_t own_thread() noexcept {
  std::uintptr_t self;
  __asm__("mov %%fs:0x10, %0" : "=r"(self));
  return self;
}

// A Python thread and its state.
struct Waiter {
  const std::byte* state = nullptr;
  std::uintptr_t thread = 0;  // own_thread()
};
// The one beside it in its interpreter's list. State nullptr: there is none; or, if `reader` has failed, it is not in
// the list itself, or the list changed meanwhile.
enum class Side : std::uint8_t { previous, next };
Waiter waiter_beside(const Waiter& waiter, Side side, CopiedReader& reader) noexcept;
// Whether it has released the GIL.
bool is_waiting(const Waiter& waiter, CopiedReader& reader) noexcept;
// Its frames, innermost first, as many as there is room for. None unless it has released the GIL, or where they could
// not be read. It may go on at any moment: see python_waiter.h.
std::size_t walk_waiting(const Waiter& waiter, std::span<WalkedPythonFrame> frames, CopiedReader& reader) noexcept;

// Whether the calling thread runs CPython's cyclic collector, or a finalizer that it has called. False also where that
// is not known. In any thread, and in signal handlers.
bool python_is_collecting() noexcept;

// A walked frame as a stack record holds it, its code object described to the reader at first use. code_id 0:
// that was not possible. native_index is left to the caller.
trace::PythonFrame describe_frame(const WalkedPythonFrame& frame, const trace::Writer& writer,
                                  trace::Lease& lease) noexcept;

// The same of another thread's frame.
struct ForeignFrame {
  trace::PythonFrame frame;
  std::uint64_t number;  // of its code
  bool pending;          // its id holds for others once it is settled
};
ForeignFrame describe_foreign_frame(const WalkedPythonFrame& frame, CopiedReader& reader, const trace::Writer& writer,
                                    trace::Lease& lease) noexcept;
// Of a frame whose code has that number.
trace::PythonFrame frame_of_same_code(const WalkedPythonFrame& frame, std::uint64_t number) noexcept;
// Ends what is pending. `was_there`: the code was, from the walk on until now, and the id is its own; else the id is
// void. False: it is not the code's id, as that was freed meanwhile, or described by a thread that runs it.
bool settle_foreign_code(const void* code, std::uint64_t number, bool was_there) noexcept;
// Whether there is code at that address that has an id.
bool is_known_code(const void* code) noexcept;

// Changes when an id is forgotten: what describe_frame said of a frame before may then be of other code. Never 0.
std::uint64_t code_generation() noexcept;

// Keeps all ids when the tables are `shared` with the parent's, or forgets them.
void python_after_fork_in_child(bool shared) noexcept;

// [start, end) of _PyEval_EvalFrameDefault, 0 without Python. For 3.8 and 3.9, whose frames have no
// place on the C stack.
struct EvalRange {
  std::uint64_t start, end;
};
EvalRange python_eval_range() noexcept;

}  // namespace whyrss::shim
