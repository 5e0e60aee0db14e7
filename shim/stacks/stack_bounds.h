// What of a stack may be read. A chain of frames can lead anywhere when it ends without saying so
// (coroutines, code without tables), and a guard page is never far: each page is known to be readable
// before a walk reads it. The main stack and a thread's own stack need that once, others at each walk.
// No locks, no allocation, no descriptors; async-signal-safe.
#pragma once

#include <cstdint>

namespace whyrss::shim {

// Per thread, zero at first: what was learnt about the thread's own stack.
struct KnownStack {
  std::uint64_t low;   // every page from here to the thread's control block is readable, 0: not known
  std::uint64_t hole;  // a page below the thread's stack that is not
};

class StackBounds {
 public:
  explicit StackBounds(KnownStack& known) noexcept : known_(known) {}

  // The walk goes on at `sp`, on whatever stack that is.
  void enter(std::uint64_t sp) noexcept;

  // Whether the word at `address` lies on the stack entered last, above its sp, and can be read.
  [[nodiscard]] bool readable(std::uint64_t address) noexcept {
    if ((address & 7) != 0 || address < sp_ || address >= limit_) return false;
    return address < end_ || extend(address);
  }

  // Whether what lies between can be read as long as the thread runs.
  [[nodiscard]] bool is_lasting() const noexcept { return lasting_; }

  // What is known now: words between the sp entered last and this can be read.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }

 private:
  bool extend(std::uint64_t address) noexcept;

  KnownStack& known_;
  std::uint64_t sp_ = 0, end_ = 0;  // what lies between can be read
  std::uint64_t limit_ = 0;         // nothing at or above this is
  bool lasting_ = false;
};

// Where the calling thread's own stack ends, on which `sp` lies; 0: it lies on another one, or that is not known.
std::uint64_t own_stack_end(std::uint64_t sp) noexcept;

// Remembers the main thread's stack; called on it.
void start_stack_bounds() noexcept;

}  // namespace whyrss::shim
