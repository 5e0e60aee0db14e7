// From an address in code to the rule that leads to its caller's frame, read from the .eh_frame tables
// that every x86-64 ELF image maps. No locks, no allocation, no writes; async-signal-safe.
// Sources: System V ABI x86-64 psABI (register numbers), LSB .eh_frame, glibc's _dl_find_object (2.35+).
#pragma once

#include <cstdint>

#include "shim/stacks/image_list.h"

namespace whyrss::shim {

enum class RuleKind : std::uint8_t {
  none = 0,      // zero-initialised: no rule known
  cfa_rsp,       // CFA = RSP + offset
  cfa_rbp,       // CFA = RBP + offset
  deref_rsp,     // CFA = [RSP + offset] + addend
  deref_rbp,     // CFA = [RBP + offset] + addend (realigned stacks)
  signal_frame,  // the kernel's sigreturn trampoline: the interrupted registers lie at RSP
  end,           // outermost frame: the return address is undefined
  complex,       // anything else, or no table: unwinding stops here
};

// rbp_offset of frames that keep the caller's RBP where RBP points to.
inline constexpr std::int16_t kRbpAtItself = INT16_MIN;

// How to find the caller of one code address. 8 bytes, so that a cache slot is one atomic word.
struct UnwindRule {
  RuleKind kind = RuleKind::none;
  std::int8_t addend = 0;
  std::int16_t rbp_offset = 0;  // RBP was saved at CFA + rbp_offset; 0: it still holds the caller's
  std::int32_t offset = 0;
};
static_assert(sizeof(UnwindRule) == 8);

// The rule at `pc`. For a return address look up the call before it: pc = address - 1.
UnwindRule find_unwind_rule(std::uint64_t pc) noexcept;

// Of glibc's _dl_find_object, else of image_list.h.
LoadedImage find_image(std::uint64_t address) noexcept;
// Whether it is of the former, which is always right. Also before the start.
bool is_image_known_by_libc() noexcept;

// As long as one lives that holds, a dlclose waits before it unmaps anything, for at most 10 ms: rules are read from
// the images. Of the calling thread's own frames nothing is unmapped; what was found on another thread's stack may be.
class CodeHold {
 public:
  CodeHold() noexcept;
  CodeHold(const CodeHold&) = delete;
  CodeHold& operator=(const CodeHold&) = delete;
  ~CodeHold();
  // False: a dlclose runs.
  explicit operator bool() const noexcept { return holds_; }

 private:
  bool holds_;
};

// Around a dlclose.
void begin_rule_removal() noexcept;
void end_rule_removal() noexcept;
// Threads that held, or removed, are not in the child.
void unwind_rules_after_fork_in_child() noexcept;

// Looks up what the above need from the loader; they find nothing before.
void start_unwind_rules() noexcept;

}  // namespace whyrss::shim
