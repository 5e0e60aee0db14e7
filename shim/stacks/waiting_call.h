// Whether another thread waits in a call of a library. While it is blocked in a system call the kernel says where its
// stack is (/proc/self/task/TID/syscall, proc(5)), and from there its frames are followed by copies (copied_memory.h).
// No locks, no allocation; async-signal-safe. Opens one descriptor at a time, closed again at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/stacks/unwind_memo.h"

namespace whyrss::shim {

// The libraries that a stack goes through. Not those in which threads of any library may wait, and not the interpreter.
class StackLibraries {
 public:
  void take(const StackMemo& stack) noexcept;
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool hold(std::uint64_t address) const noexcept;
  // A runtime like OpenMP or TBB started it: a call ends when all of its threads have done their work, and the caller
  // is one of them.
  [[nodiscard]] bool is_joined() const noexcept { return is_joined_; }

 private:
  struct Range {
    std::uint64_t start, end;
    [[nodiscard]] bool holds(std::uint64_t address) const noexcept { return address - start < end - start; }
  };
  static constexpr std::size_t kMost = 8;

  std::size_t count_ = 0;
  bool is_joined_ = false;
  std::array<Range, kMost> ranges_{};
};

enum class WaitsThere : std::uint8_t { unknown, no, yes };

// `thread`: its pthread_self(). Unknown where it is not blocked, or its frames cannot be followed. 4 us, and 0.7 us for
// each frame inward of the library's, or of the interpreter's if there is none.
WaitsThere waits_in(const StackLibraries& libraries, std::uintptr_t thread, long own_pid) noexcept;

}  // namespace whyrss::shim
