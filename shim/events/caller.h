// Where the program called us: what a stack is taken from.
#pragma once

#include <cstdint>

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

}  // namespace whyrss::shim
