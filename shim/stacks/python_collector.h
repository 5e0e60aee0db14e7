// The Python frames that a walk finds (python_walk.cc). No locks, no allocation; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/stacks/python_frames.h"

namespace whyrss::shim {

// Collects frames; gives those of one eval call its address.
class Collector {
 public:
  // `wants_places`: also of the last ones that had room it is to be found out where their eval call ends.
  explicit Collector(std::span<WalkedPythonFrame> frames, bool wants_places = true) noexcept
      : frames_(frames), wants_places_(wants_places) {}

  void add(const void* code, std::int32_t last_instruction_bytes, std::uint16_t flags, std::uint64_t eval_address,
           bool of_generator) noexcept {
    if (count_ == frames_.size()) {
      truncated_ = true;
      return;
    }
    frames_[count_++] = {.code = code,
                         .last_instruction_bytes = last_instruction_bytes,
                         .flags = flags,
                         .of_generator = of_generator,
                         .eval_address = eval_address};
  }

  // The frames since the last call ran in the eval call at this address.
  void end_eval_call(std::uint64_t eval_address) noexcept {
    for (std::size_t i = eval_begin_; i < count_; ++i) frames_[i].eval_address = eval_address;
    if (count_ > eval_begin_ && !truncated_) frames_[count_ - 1].flags |= trace::PythonFrameFlags::entry;
    eval_begin_ = count_;
  }

  // The frames since the last call run in the same eval call as one that was met.
  void join_eval_call(std::uint64_t eval_address) noexcept {
    for (std::size_t i = eval_begin_; i < count_; ++i) frames_[i].eval_address = eval_address;
    eval_begin_ = count_;
  }

  // Nothing more would be learnt from the frames that follow.
  [[nodiscard]] bool is_done() const noexcept { return truncated_ && (eval_begin_ == count_ || !wants_places_); }
  [[nodiscard]] bool is_truncated() const noexcept { return truncated_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool in_eval_call() const noexcept { return eval_begin_ != count_; }

  [[nodiscard]] PythonWalk finish(bool torn) const noexcept {
    return {.count = static_cast<std::uint16_t>(count_), .truncated = truncated_, .torn = torn};
  }
  // With what was met.
  [[nodiscard]] PythonWalk finish(const PythonHop& met, bool torn) const noexcept {
    return {.count = static_cast<std::uint16_t>(count_), .met = &met, .torn = torn, .whole = true};
  }
  // At the end of the chain.
  [[nodiscard]] PythonWalk finish_whole(bool torn) const noexcept {
    PythonWalk walk = finish(torn);
    walk.whole = !truncated_;
    return walk;
  }

 private:
  std::span<WalkedPythonFrame> frames_;
  bool wants_places_;
  std::size_t count_ = 0, eval_begin_ = 0;
  bool truncated_ = false;
};

}  // namespace whyrss::shim
