// The last native stack of a thread, so that the next one is verified instead of walked again.
//
// A walk is a function of its first registers, of the rules (the same as long as no code goes away) and of
// the words that it reads: return addresses, and saved RBPs where a frame further out needs them. So when a
// walk arrives at a frame that it met last time, and all words that were read from there on still hold what
// they held, the rest of the stack is the same too. The loads of that check do not wait for each other:
// 0.3 ns a frame against 5. Nothing less would do: a caller may return and be called again from elsewhere,
// and leave every frame but one as it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shim/stacks/stack_bounds.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// A frame of a walk: its registers, and the rule that leads on from it.
struct WalkedFrame {
  std::uint64_t ip;  // a return address; one more than the address of an instruction that was interrupted
  std::uint64_t sp, bp;
  std::uint64_t rule;  // an UnwindRule as one word: compilers take the struct apart byte by byte
};

// Per thread, zero at first, large: in the memory of StackScratch. Frames fill their arrays from the end:
// the outermost is the last element, the innermost is at `first`.
class StackMemo {
 public:
  static constexpr std::size_t kEnd = trace::kMaxNativeFrames;

  struct Frame {
    std::uint64_t sp, ip;
  };

  [[nodiscard]] std::size_t first() const noexcept { return first_; }
  [[nodiscard]] const Frame* outermost() const noexcept { return &frames_[kEnd - 1]; }
  [[nodiscard]] const Frame& frame(std::size_t index) const noexcept { return frames_[index]; }
  // Of all frames from the outermost to this one.
  [[nodiscard]] std::uint64_t hash(std::size_t index) const noexcept { return link(index).hash; }
  [[nodiscard]] bool incomplete() const noexcept { return incomplete_; }
  [[nodiscard]] bool cut_off() const noexcept { return cut_off_; }

  // A new walk. Nothing is known when rules were forgotten since the last one, or code goes away right now.
  void begin(std::uint64_t generation, bool settled) noexcept {
    if (!settled || !settled_ || generation != generation_) known_ = kEnd;
    verified_ = false;
    settled_ = settled;
    generation_ = generation;
  }

  // The first frame that a walk may meet.
  [[nodiscard]] std::size_t known() const noexcept { return known_; }

  // Whether the rest of the stack is the remembered one, from the frame `candidate` on. Asked at each frame of a
  // walk, with a candidate that began as known() and moves on by up to two frames a question, without a branch;
  // where that is too few the stacks meet some frames later. `count` frames were passed before: there must be room
  // for them, and a stack that was cut off is only met where it is as deep again.
  [[nodiscard]] bool meets(std::size_t& candidate, std::size_t count, std::uint64_t ip, std::uint64_t sp,
                           std::uint64_t bp, StackBounds& stack) noexcept {
    if (candidate >= kEnd) return false;
    candidate += frames_[candidate].sp < sp ? 1 : 0;
    candidate += frames_[candidate].sp < sp ? 1 : 0;
    if (frames_[candidate].sp != sp || frames_[candidate].ip != ip) return false;
    if (cut_off_ ? count != candidate : count > candidate) return false;
    if (link(candidate).needs_bp && link(candidate).bp != bp) return false;
    if (verified_ || holds(candidate, stack)) return true;
    candidate = known_;
    return false;
  }

  // Whether the whole stack is one that still_holds() can verify, on a stack that lasts as long as its thread.
  [[nodiscard]] bool can_be_verified() const noexcept {
    return settled_ && known_ == first_ && first_ < kEnd && (!cut_off_ || first_ == 0);
  }
  // Its first frame has the registers that it had: whether the rest is the remembered one too. The frames that change
  // most are read first.
  [[nodiscard, gnu::always_inline]] bool still_holds() const noexcept {
    const Frame* frame = &frames_[first_ + 1];
    const Frame* end = &frames_[kEnd];
    for (; end - frame >= 4; frame += 4)
      if ((change_of(frame[0]) | change_of(frame[1]) | change_of(frame[2]) | change_of(frame[3])) != 0) return false;
    for (; frame != end; ++frame)
      if (change_of(*frame) != 0) return false;
    const std::size_t words = link(first_).word_count;
    for (std::size_t i = 0; i < words; ++i)
      if (*reinterpret_cast<const std::uint64_t*>(words_[i].place) != words_[i].value) return false;
    return true;
  }
  // RBP of the first frame, where a frame further out is found by it; nullptr: by none.
  [[nodiscard]] const std::uint64_t* needed_bp() const noexcept {
    return link(first_).needs_bp ? &link(first_).bp : nullptr;
  }

  // Where the words lie that the walk of a stack that can be verified has read, always in the same order.
  [[nodiscard]] std::size_t place_count() const noexcept { return kEnd - 1 - first_ + link(first_).word_count; }
  template <typename Use>
  void each_place(Use use) const noexcept {
    for (std::size_t i = first_ + 1; i < kEnd; ++i) use(frames_[i].sp - 8);
    for (std::size_t i = 0; i < link(first_).word_count; ++i) use(words_[i].place);
  }

  // How a walk ended that did not meet the memo.
  enum class Ending : std::uint8_t {
    by_rule,  // whatever the stack holds
    at_zero,  // the last return address, at the place given, was 0
    cut_off,  // more frames than room
    other,    // would have to be walked again: a word that could not be read
  };

  // The frames, innermost first, that the walk passed before it met `candidate`.
  void remember_inner(std::size_t candidate, const WalkedFrame* frames, std::size_t count) noexcept;
  // All frames of a walk that met nothing.
  void remember_all(const WalkedFrame* frames, std::size_t count, Ending ending, std::uint64_t zero_place,
                    bool incomplete) noexcept;

  // Addresses without a way to verify them, innermost first.
  void set_addresses(const std::uint64_t* ips, std::size_t count, bool incomplete) noexcept;

 private:
  struct Link {
    std::uint64_t hash;
    std::uint64_t bp;          // RBP in this frame
    std::uint32_t word_count;  // words_ that must hold for this frame and all further out
    bool needs_bp;             // a frame from here on is found by RBP
  };
  struct Word {
    std::uint64_t place, value;
    std::uint64_t frame;  // index of the frame whose rule reads it
  };

  // 0: its return address still stands where it stood.
  static std::uint64_t change_of(const Frame& frame) noexcept {
    return *reinterpret_cast<const std::uint64_t*>(frame.sp - 8) ^ frame.ip;
  }
  [[nodiscard]] bool holds(std::size_t candidate, StackBounds& stack) noexcept;
  void forget() noexcept;
  void put(std::size_t index, const WalkedFrame& frame, std::uint64_t outer_hash) noexcept;
  void put_inside_of(std::size_t rest, const WalkedFrame* frames, std::size_t count, std::size_t known) noexcept;
  [[nodiscard]] bool add_word(std::size_t index, std::uint64_t place, std::uint64_t value) noexcept;
  [[nodiscard]] bool is_plain_link(std::size_t index, const WalkedFrame& frame) const noexcept;
  [[nodiscard]] bool add_link(std::size_t index, const WalkedFrame& frame) noexcept;

  // From the outermost frame on, so that what shallow stacks use lies together in a page (see StackScratch).
  [[nodiscard]] Link& link(std::size_t index) noexcept { return links_[kEnd - 1 - index]; }
  [[nodiscard]] const Link& link(std::size_t index) const noexcept { return links_[kEnd - 1 - index]; }

  std::array<Word, 2 * kEnd> words_{};
  std::array<Frame, kEnd + 2> frames_{};  // the last two stay 0
  std::uint64_t generation_ = 0;
  std::size_t first_ = 0;
  std::size_t known_ = 0;  // frames from here on may be met
  std::uint64_t top_ = 0;  // no word above this is read
  std::size_t word_count_ = 0;
  bool settled_ = false;
  bool verified_ = false;  // frames from known_ on hold, as of this walk
  bool incomplete_ = false;
  bool cut_off_ = false;
  std::array<Link, kEnd> links_{};
};

}  // namespace whyrss::shim
