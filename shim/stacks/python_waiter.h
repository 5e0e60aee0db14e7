// Where the main thread stands while a thread that runs no Python code has an event: a library's own threads allocate
// for a call of the main thread, as a rule, and have no line of the program on their stacks. Its frames are read while
// it has released the GIL: what was read holds only if it stood there before and after.
// No locks, no allocation; async-signal-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shim/stacks/python_copy.h"
#include "shim/stacks/stack_python.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// The main thread's state, from each of its own walks.
void note_waiter(const std::byte* state) noexcept;
// It may be gone, or is another thread's.
void forget_waiter() noexcept;

// Per thread, zero at first.
class WaiterMemo {
 public:
  // Enough to come from a library's code to the program's.
  static constexpr std::size_t kMostFrames = 48;

  // Takes the main thread's frames; `walked` is room for a walk. None where it does not wait, or cannot be read.
  void take(std::span<WalkedPythonFrame> walked, const trace::Writer& writer, trace::Lease& lease) noexcept;
  void clear() noexcept { count_ = 0; }

  // Of the frames taken last: innermost first, and their sum, 0: there are none.
  [[nodiscard]] std::span<const trace::PythonFrame> frames() const noexcept { return std::span(frames_).first(count_); }
  [[nodiscard]] std::uint64_t hash() const noexcept { return count_ != 0 ? hash_ : 0; }

 private:
  std::size_t count_ = 0;
  std::size_t known_ = 0;         // of walked_ and frames_, what is described
  std::uint64_t generation_ = 0;  // of code objects, when they were
  std::uint64_t hash_ = 0;
  std::array<WalkedPythonFrame, kMostFrames> walked_{};
  std::array<trace::PythonFrame, kMostFrames> frames_{};
  std::array<std::uint64_t, kMostFrames> numbers_{};
  std::array<bool, kMostFrames> pending_{};
  CopiedPages pages_{};
};

}  // namespace whyrss::shim
