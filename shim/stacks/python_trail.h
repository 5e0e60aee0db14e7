// The interpreter's frames as the last walk of this thread met them, so that the next one walks only what is new.
//
// A walk is a function of the words that it reads. So when it arrives at a frame that it met last time, and all words
// that were read from there on still hold what they held, the rest of the stack is the same too. Frames are freed and
// their memory with them: a frame is read only after the link that leads to it was found unchanged, so that it is the
// one that a walk would read. These loads do not wait for each other, and no code object is looked up.
// Per thread, zero at first, large. No locks, no allocation; async-signal-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/sys/hash.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// One element of the interpreter's chain of frames: of Python code, or, from 3.12 on, the boundary of an eval call.
// With the words that the walk read there, as far as its version has them.
struct PythonHop {
  const std::byte* frame;
  const std::byte* cframe;           // when the walk arrived
  const std::byte* previous;         // the next frame
  const std::byte* cframe_previous;  // read where cframe_was_read
  std::uint64_t code, instruction;
  std::uint64_t eval_address;  // of WalkedPythonFrame
  std::uint16_t python;        // PythonMemo's index of the innermost Python frame from here on
  std::uint8_t owner, is_entry;
  bool cframe_was_read, is_python;
};

// Hops fill their array from the end: the outermost is the last element.
class PythonTrail {
 public:
  static constexpr std::size_t kEnd = trace::kMaxPythonFrames;

  // A new walk, which begins at these; another thread state or base than before may have other rules.
  void begin(const void* state, const void* base) noexcept {
    passed_count_ = 0;
    is_verified_ = false;
    if (state != state_ || base != base_) forget();
    state_ = state;
    base_ = base;
  }
  // Nothing is known any more.
  void forget() noexcept {
    known_ = kEnd;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  // The hop from which on the rest of the stack is the remembered one; nullptr: the walk goes on. Asked at each frame.
  // `changes_of` compares the words of a hop with what is there now.
  enum class Change : std::uint8_t { none, content, link };
  template <class ChangeOf>
  [[gnu::always_inline]] const PythonHop* meets(const std::byte* frame, const std::byte* cframe,
                                                ChangeOf change_of) noexcept {
    const std::size_t index = places_[place_of(frame)];
    if (index < known_ || index >= kEnd || hops_[index].frame != frame || hops_[index].cframe != cframe) return nullptr;
    if (!is_verified_ && !verify(index, change_of)) return nullptr;
    return index >= known_ ? &hops_[index] : nullptr;
  }

  // A frame that is not met.
  [[gnu::always_inline]] void pass(const PythonHop& hop) noexcept {
    if (passed_count_ < kEnd) passed_[passed_count_] = hop;
    ++passed_count_;
  }

  [[nodiscard]] bool is_torn() const noexcept { return is_torn_; }

  // After a walk that met this: nothing has changed, and nothing need be remembered.
  [[nodiscard]] bool is_unchanged(const PythonHop* met) const noexcept {
    return passed_count_ == 0 && met == &hops_[innermost_];
  }

  // After a walk: puts what was passed before `met`, nullptr: before the end of the chain. `python_rest` is
  // PythonMemo's index of the first Python frame that was not passed. `eval_addresses` of the Python frames passed,
  // innermost first.
  template <class EvalAddress>
  void remember(const PythonHop* met, std::size_t python_rest, bool is_torn, EvalAddress eval_address) noexcept {
    const std::size_t rest = met != nullptr ? static_cast<std::size_t>(met - hops_.data()) : kEnd;
    forget();
    if (passed_count_ > rest) return;
    std::size_t index = rest;
    std::size_t python = python_rest;
    std::size_t python_passed = 0;
    for (std::size_t i = 0; i < passed_count_; ++i) python_passed += passed_[i].is_python ? 1 : 0;
    for (std::size_t i = passed_count_; i-- > 0;) {
      PythonHop& hop = hops_[--index];
      hop = passed_[i];
      if (hop.is_python) {
        hop.eval_address = eval_address(--python_passed);
        --python;
      }
      hop.python = static_cast<std::uint16_t>(python);
      places_[place_of(hop.frame)] = static_cast<std::uint16_t>(index);
    }
    is_torn_ = is_torn;
    innermost_ = index;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    known_ = index;
  }

 private:
  static constexpr std::size_t kPlaces = 256;
  static std::size_t place_of(const std::byte* frame) noexcept {
    return (reinterpret_cast<std::uintptr_t>(frame) >> 4) * kHashSpread >> 56;
  }
  static_assert(kPlaces == 1 << 8);

  // From `index` outwards; known_ is then the first hop from which on all holds, or may hold. False: a link has
  // changed, and what lies beyond it may not be read.
  template <class ChangeOf>
  bool verify(std::size_t index, ChangeOf change_of) noexcept {
    std::size_t known = index;
    for (std::size_t i = index; i < kEnd; ++i) {
      const Change change = change_of(hops_[i]);
      if (change == Change::none) continue;
      known = i + 1;
      if (change != Change::link) continue;
      known_ = known;
      return false;
    }
    known_ = known;
    is_verified_ = true;
    return true;
  }

  const void* state_ = nullptr;
  const void* base_ = nullptr;
  std::size_t known_ = kEnd;  // hops from here on may be met
  std::size_t innermost_ = kEnd;
  std::size_t passed_count_ = 0;
  bool is_verified_ = false;                     // hops from known_ on hold, as of this walk
  bool is_torn_ = false;                         // the chain that is remembered
  std::array<std::uint16_t, kPlaces> places_{};  // where the hop of a frame may be
  std::array<PythonHop, kEnd + 1> hops_{};       // the last one stays 0
  std::array<PythonHop, kEnd> passed_{};
};

}  // namespace whyrss::shim
