// Where the thread stands that waits for this one: a library's own threads allocate for a call that a Python thread has
// made, and have no line of the program on their stacks. A Python thread is taken for that caller if it has released
// the GIL, and is the only one that is in a call of a library of this stack: it is blocked there (waiting_call.h), or
// runs and had an event of its own there from the same Python instruction. Where none is known to be, and a runtime
// like OpenMP's started this thread, whose callers take part in the work, it is the only one of which that is not
// known. Its frames hold only if it stood there before and after they were read. No locks, no allocation;
// async-signal-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shim/stacks/python_frames.h"
#include "shim/stacks/stack_python.h"
#include "shim/stacks/waiting_call.h"
#include "shim/sys/copied_memory.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// A Python thread, from its own walks: the way to the others. The main thread where it is one.
void note_python_thread(const std::byte* state, bool is_main) noexcept;
// It had an event in a library at `address`, called from a Python instruction.
void note_library_call(const std::byte* state, const WalkedPythonFrame& innermost, std::uint64_t address) noexcept;
// Those that are known may be gone.
void forget_python_threads() noexcept;

// Per thread, zero at first.
class WaiterMemo {
 public:
  // Enough to come from a library's code to the program's.
  static constexpr std::size_t kMostFrames = 48;

  // Takes that thread's frames; `native`: this stack, nullptr: not walked this time. `walked` is room for a walk.
  // Without frames afterwards: none waits, or which one is not known. False: that needs `native`.
  bool take(const StackMemo* native, std::span<WalkedPythonFrame> walked, const trace::Writer& writer,
            trace::Lease& lease) noexcept;
  void clear() noexcept { count_ = 0; }
  // The thread runs Python code, as a thread of Python does soon after its start: what was copied before that is given
  // back. Once, since a thread of a library may run some again and again.
  void clear_for_python() noexcept;

  // Of the frames taken last: innermost first, and their sum, 0: there are none.
  [[nodiscard]] std::span<const trace::PythonFrame> frames() const noexcept { return std::span(frames_).first(count_); }
  [[nodiscard]] std::uint64_t hash() const noexcept { return count_ != 0 ? hash_ : 0; }

 private:
  struct Search {
    Waiter waiter;            // state nullptr: none, or which one is not known
    bool is_known = false;    // it is in a call of the library
    bool whole = false;       // all threads were seen
    bool is_certain = false;  // of each of them it is known where it is
  };
  [[nodiscard]] WaitsThere is_in_call(const Waiter& waiter, const WalkedPythonFrame& innermost,
                                      WaitsThere is_blocked_there) const noexcept;
  void find_waiter_again(const Waiter& known, const StackMemo& native, std::span<WalkedPythonFrame> walked,
                         long own_pid, std::uint64_t begin_ns) noexcept;
  Search find_waiter(const Waiter& known, std::span<WalkedPythonFrame> walked, long own_pid) noexcept;
  void take_frames(std::span<WalkedPythonFrame> walked, bool is_new, long own_pid, const trace::Writer& writer,
                   trace::Lease& lease) noexcept;

  std::size_t held_ = 0;  // of the frames taken last, as long as they are fresh
  std::uint64_t fresh_until_ns_ = 0;
  bool is_known_ = false;  // that waiter_ is in a call of the library
  Waiter waiter_{};        // as found last
  std::uint64_t holds_until_ns_ = 0;
  std::uint32_t hold_ = 0;      // how long, in times that finding it took
  StackLibraries libraries_{};  // of the stack that it was found for
  std::size_t count_ = 0;
  std::size_t known_ = 0;         // of walked_ and frames_, what is described
  std::uint64_t generation_ = 0;  // of code objects, when they were
  std::uint64_t hash_ = 0;
  std::array<WalkedPythonFrame, kMostFrames> walked_{};
  std::array<trace::PythonFrame, kMostFrames> frames_{};
  std::array<std::uint64_t, kMostFrames> numbers_{};
  std::array<bool, kMostFrames> pending_{};
  bool gave_back_ = false;  // pages_
  CopiedPages pages_{};
};

}  // namespace whyrss::shim
