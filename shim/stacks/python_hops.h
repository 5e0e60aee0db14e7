// The walk's side of python_trail.h: the words of a frame that the walk of a version reads (python_walk.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shim/stacks/python_collector.h"
#include "shim/stacks/python_interpreter.h"
#include "shim/stacks/python_trail.h"

namespace whyrss::shim {

// What of a hop is not as it was. Its frame is one: the link to it was found unchanged.
template <std::size_t kRow>
PythonTrail::Change change_of(const PythonHop& hop) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  using Change = PythonTrail::Change;
  bool is_linked = load_at<const std::byte*>(hop.frame, layout.frame_previous) == hop.previous;
  if constexpr (layout.family >= FrameFamily::entry_flag)
    is_linked &= load_at<std::uint8_t>(hop.frame, layout.frame_owner) == hop.owner;
  if constexpr (layout.family == FrameFamily::entry_flag)
    is_linked &= load_at<std::uint8_t>(hop.frame, layout.frame_is_entry) == hop.is_entry;
  if constexpr (layout.family == FrameFamily::objects_cframe || layout.family == FrameFamily::entry_flag)
    if (hop.cframe_was_read)
      is_linked &= load_at<const std::byte*>(hop.cframe, layout.cframe_previous) == hop.cframe_previous;
  if (!is_linked) return Change::link;
  if (!hop.is_python) return Change::none;
  using Instruction = std::conditional_t<(layout.family < FrameFamily::entry_flag), std::uint32_t, std::uint64_t>;
  const bool is_same = load_at<std::uint64_t>(hop.frame, layout.frame_code) == hop.code &&
                       load_at<Instruction>(hop.frame, layout.frame_instruction) == hop.instruction;
  return is_same ? Change::none : Change::content;
}

// What the walk of a frame may meet, and what it passes. Signal handlers have no trail: nothing is known to be a frame
// there.
template <std::size_t kRow, class Reader>
class Trail {
  static constexpr PythonLayout kLayout = kPythonLayouts[kRow];
  static constexpr bool kIsKept = !Reader::kProbed && kLayout.frame_copy_index == 0;

 public:
  Trail(PythonTrail* trail, const void* state, const void* base) noexcept : trail_(kIsKept ? trail : nullptr) {
    if (trail_ != nullptr) trail_->begin(state, base);
  }

  // nullptr: the frame must be walked. What was passed must have room beside the rest.
  const PythonHop* meets(const std::byte* frame, const std::byte* cframe, const Collector& collector) noexcept {
    if (!kIsKept || trail_ == nullptr) return nullptr;
    const PythonHop* met = trail_->meets(frame, cframe, change_of<kRow>);
    return met != nullptr && collector.count() <= met->python && !collector.is_truncated() ? met : nullptr;
  }
  [[nodiscard]] bool is_torn() const noexcept { return trail_->is_torn(); }

  // A frame, whose words are read again: they are in the cache.
  void pass(const std::byte* frame, const std::byte* cframe, bool is_python, bool cframe_was_read) noexcept {
    if (!kIsKept || trail_ == nullptr) return;
    PythonHop hop{.frame = frame,
                  .cframe = cframe,
                  .previous = load_at<const std::byte*>(frame, kLayout.frame_previous),
                  .cframe_previous = nullptr,
                  .code = 0,
                  .instruction = 0,
                  .eval_address = 0,
                  .python = 0,
                  .owner = 0,
                  .is_entry = 0,
                  .cframe_was_read = cframe_was_read,
                  .is_python = is_python};
    if constexpr (kLayout.family >= FrameFamily::entry_flag)
      hop.owner = load_at<std::uint8_t>(frame, kLayout.frame_owner);
    if constexpr (kLayout.family == FrameFamily::entry_flag)
      hop.is_entry = load_at<std::uint8_t>(frame, kLayout.frame_is_entry);
    if (cframe_was_read) hop.cframe_previous = load_at<const std::byte*>(cframe, kLayout.cframe_previous);
    if (is_python) {
      hop.code = load_at<std::uint64_t>(frame, kLayout.frame_code);
      hop.instruction = kLayout.family < FrameFamily::entry_flag
                            ? load_at<std::uint32_t>(frame, kLayout.frame_instruction)
                            : load_at<std::uint64_t>(frame, kLayout.frame_instruction);
    }
    trail_->pass(hop);
  }

 private:
  PythonTrail* trail_;
};

}  // namespace whyrss::shim
