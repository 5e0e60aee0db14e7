// The Python frames of a stack, ready for its record: described, placed among the native frames, summed up.
// Frames that the thread's last stack had too, counted from the outermost one, are taken from there.
// No locks, no allocation; async-signal-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// One Python frame as walked, before its code object has an id.
struct WalkedPythonFrame {
  const void* code;
  std::int32_t last_instruction_bytes;
  std::uint16_t flags;         // trace::PythonFrameFlags
  std::uint16_t of_generator;  // 1: lives in a generator or coroutine
  // An address inside the C stack frame of the eval call that runs it, 0: not known. The same for all
  // frames of one eval call.
  std::uint64_t eval_address;

  bool operator==(const WalkedPythonFrame&) const = default;
};

class StackMemo;

// Per thread, zero at first, large. As in StackMemo the outermost frame is the last element.
class PythonMemo {
 public:
  static constexpr std::size_t kEnd = trace::kMaxPythonFrames;

  // Before a walk. False: no frame may be taken from the last one.
  bool begin() noexcept;
  // Takes a walk's frames, innermost first, in front of those that it met: from the last stack's index `rest` on, kEnd:
  // none. False: a frame is without the id of its code.
  bool take(std::span<const WalkedPythonFrame> walked, std::size_t rest, const trace::Writer& writer,
            trace::Lease& lease) noexcept;
  // Finds out where on `native` the frames ran, as far as they say so; `has_stack_pointers`: whether native frames
  // have.
  void place(const StackMemo& native, bool has_stack_pointers) noexcept;

  // Of the frames taken last: innermost first, and their sum.
  [[nodiscard]] std::span<const trace::PythonFrame> frames() const noexcept {
    return std::span(frames_).subspan(generation_ != 0 ? first_ : kEnd);
  }
  // nullptr: there is none.
  [[nodiscard]] const WalkedPythonFrame* innermost() const noexcept {
    return generation_ == 0 || first_ == kEnd ? nullptr : &sources_[first_].walked;
  }
  [[nodiscard]] std::uint64_t hash() const noexcept { return first_ == kEnd ? 0 : sources_[first_].hash; }

 private:
  struct Source {
    WalkedPythonFrame walked;
    std::uint64_t hash;  // of this frame and all further out
  };

  void place_by_address(const StackMemo& native) noexcept;
  void place_by_eval_calls(const StackMemo& native) noexcept;

  std::uint64_t generation_ = 0;       // of code objects; 0: nothing is known
  std::uint64_t walk_generation_ = 0;  // before the walk
  std::size_t first_ = kEnd;
  std::array<Source, kEnd> sources_{};
  std::array<trace::PythonFrame, kEnd> frames_{};
};

}  // namespace whyrss::shim
