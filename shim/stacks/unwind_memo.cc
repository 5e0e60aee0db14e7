#include "shim/stacks/unwind_memo.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "shim/sys/hash.h"

namespace whyrss::shim {
namespace {

constexpr std::uint64_t kSeed = 0x243f6a8885a308d3;

std::uint64_t load(std::uint64_t address) noexcept { return *reinterpret_cast<const std::uint64_t*>(address); }

std::uint64_t plus(std::uint64_t base, std::int64_t offset) noexcept {
  return base + static_cast<std::uint64_t>(offset);
}

}  // namespace

// From the outermost frame inwards, four at a time, up to the first that has changed.
bool StackMemo::holds(std::size_t candidate, StackBounds& stack) noexcept {
  if (!stack.readable(top_)) return false;
  const Frame* const begin = &frames_[candidate + 1];
  const Frame* frame = &frames_[kEnd];
  while (frame - begin >= 4 &&
         (change_of(frame[-1]) | change_of(frame[-2]) | change_of(frame[-3]) | change_of(frame[-4])) == 0)
    frame -= 4;
  while (frame != begin && change_of(frame[-1]) == 0) --frame;
  bool same = frame == begin;
  std::size_t unchanged = same ? candidate + 1 : static_cast<std::size_t>(frame - frames_.data()) - 1;
  const std::size_t words = link(candidate).word_count;
  for (std::size_t i = 0; i < words; ++i) {
    if (load(words_[i].place) == words_[i].value) continue;
    same = false;
    unchanged = std::max<std::size_t>(unchanged, words_[i].frame + 1);
  }
  if (same) return true;
  known_ = unchanged;
  verified_ = true;
  return false;
}

// While it is rewritten: a signal handler of the program may leave by longjmp at any point.
void StackMemo::forget() noexcept {
  known_ = kEnd;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void StackMemo::put(std::size_t index, const WalkedFrame& frame, std::uint64_t outer_hash) noexcept {
  frames_[index] = {.sp = frame.sp, .ip = frame.ip};
  link(index) = {.hash = mix(outer_hash, frame.ip),
                 .bp = frame.bp,
                 .word_count = static_cast<std::uint32_t>(word_count_),
                 .needs_bp = false};
}

// False: not a word between this frame and the outermost one's return address.
bool StackMemo::add_word(std::size_t index, std::uint64_t place, std::uint64_t value) noexcept {
  if (place < frames_[index].sp || place > top_ || word_count_ == words_.size()) return false;
  words_[word_count_++] = {.place = place, .value = value, .frame = index};
  return true;
}

// Nearly all: the step from this frame to the next one read nothing but the return address.
bool StackMemo::is_plain_link(std::size_t index, const WalkedFrame& frame) const noexcept {
  return std::bit_cast<UnwindRule>(frame.rule).kind == RuleKind::cfa_rsp && !link(index + 1).needs_bp;
}

// What the step from this frame to the next one read, besides the return address. False: not to be verified.
bool StackMemo::add_link(std::size_t index, const WalkedFrame& frame) noexcept {
  const auto rule = std::bit_cast<UnwindRule>(frame.rule);
  const Link& outer = link(index + 1);
  bool by_bp = rule.kind == RuleKind::cfa_rbp || rule.kind == RuleKind::deref_rbp;
  if (rule.kind > RuleKind::deref_rbp) return false;
  if (rule.kind >= RuleKind::deref_rsp) {
    const std::uint64_t place = plus(by_bp ? frame.bp : frame.sp, rule.offset);
    if (!add_word(index, place, plus(frames_[index + 1].sp, -std::int64_t{rule.addend}))) return false;
  }
  if (outer.needs_bp) {
    const bool at_itself = rule.rbp_offset == kRbpAtItself;
    const std::uint64_t place = at_itself ? frame.bp : plus(frames_[index + 1].sp, rule.rbp_offset);
    const bool saved = rule.rbp_offset != 0 && (at_itself || place >= frame.sp);
    if (saved && !add_word(index, place, outer.bp)) return false;
    by_bp |= at_itself || !saved;
  }
  link(index).needs_bp = by_bp;
  link(index).word_count = static_cast<std::uint32_t>(word_count_);
  return true;
}

// `known`: kEnd when what is outside of `rest` is not to be met again.
void StackMemo::put_inside_of(std::size_t rest, const WalkedFrame* frames, std::size_t count,
                              std::size_t known) noexcept {
  std::size_t index = rest;
  for (std::size_t i = count; i-- > 0;) {
    --index;
    put(index, frames[i], link(index + 1).hash);
    if (known == index + 1 && (is_plain_link(index, frames[i]) || add_link(index, frames[i]))) known = index;
  }
  first_ = index;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  known_ = known;
}

void StackMemo::remember_inner(std::size_t candidate, const WalkedFrame* frames, std::size_t count) noexcept {
  forget();
  word_count_ = link(candidate).word_count;
  put_inside_of(candidate, frames, count, candidate);
}

void StackMemo::remember_all(const WalkedFrame* frames, std::size_t count, Ending ending, std::uint64_t zero_place,
                             bool incomplete) noexcept {
  forget();
  word_count_ = 0;
  incomplete_ = incomplete;
  cut_off_ = ending == Ending::cut_off;
  const WalkedFrame& outermost = frames[count - 1];
  put(kEnd - 1, outermost, mix(kSeed, generation_ << 1 | (incomplete ? 1 : 0)));
  bool known = ending != Ending::other;
  top_ = outermost.sp - 8;
  if (ending == Ending::at_zero) {
    top_ = zero_place;
    // Found by RSP as nearly always: the sum is the same as long as the frame is.
    known = std::bit_cast<UnwindRule>(outermost.rule).kind == RuleKind::cfa_rsp && add_word(kEnd - 1, zero_place, 0);
    link(kEnd - 1).word_count = static_cast<std::uint32_t>(word_count_);
  }
  put_inside_of(kEnd - 1, frames, count - 1, known ? kEnd - 1 : kEnd);
}

void StackMemo::set_addresses(const std::uint64_t* ips, std::size_t count, bool incomplete) noexcept {
  forget();
  incomplete_ = incomplete;
  cut_off_ = false;
  std::uint64_t hash = mix(kSeed, generation_ << 1 | (incomplete ? 1 : 0));
  first_ = kEnd;
  for (std::size_t i = count; i-- > 0;) {
    --first_;
    put(first_, {.ip = ips[i], .sp = 0, .bp = 0, .rule = 0}, hash);
    hash = link(first_).hash;
  }
}

}  // namespace whyrss::shim
