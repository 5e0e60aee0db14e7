#include "shim/stacks/stack_python.h"

#include <atomic>

#include "shim/stacks/python_frames.h"
#include "shim/stacks/unwind_memo.h"
#include "shim/sys/hash.h"

namespace whyrss::shim {

// Where a Python frame ran: the native frame whose stack range holds its eval call. Both lists run from the
// innermost frame outwards, and the frames of one eval call are neighbours.
void PythonMemo::place_by_address(const StackMemo& native) noexcept {
  std::size_t at = native.first();
  std::uint64_t last_address = 0;
  std::uint16_t last_index = trace::kNoNativeIndex;
  for (std::size_t i = first_; i < kEnd; ++i) {
    const std::uint64_t address = sources_[i].walked.eval_address;
    if (address != last_address) {
      last_address = address;
      last_index = trace::kNoNativeIndex;
      for (std::size_t candidate = at; candidate + 1 < StackMemo::kEnd && address != 0; ++candidate) {
        if (address < native.frame(candidate).sp || address >= native.frame(candidate + 1).sp) continue;
        at = candidate;
        last_index = static_cast<std::uint16_t>(candidate - native.first());
        break;
      }
    }
    frames_[i].native_index = last_index;
  }
}

// Frames without a place on the C stack (CPython 3.8 and 3.9): one eval call each, in order. When the
// numbers differ nothing is claimed.
void PythonMemo::place_by_eval_calls(const StackMemo& native) noexcept {
  const EvalRange eval = python_eval_range();
  const auto runs_eval = [&](std::size_t i) {
    const std::uint64_t ip = native.frame(i).ip;
    return ip > eval.start && ip <= eval.end;
  };
  std::size_t calls = 0;
  for (std::size_t i = native.first(); i < StackMemo::kEnd; ++i)
    if (runs_eval(i)) ++calls;
  const bool fits = calls == kEnd - first_;
  std::size_t python = first_;
  for (std::size_t i = native.first(); fits && i < StackMemo::kEnd; ++i)
    if (runs_eval(i)) frames_[python++].native_index = static_cast<std::uint16_t>(i - native.first());
}

// The ids of code that runs now hold as long as none was freed since they were taken.
bool PythonMemo::begin() noexcept {
  walk_generation_ = code_generation();
  return walk_generation_ == generation_;
}

bool PythonMemo::take(std::span<const WalkedPythonFrame> walked, std::size_t rest, const trace::Writer& writer,
                      trace::Lease& lease) noexcept {
  const std::size_t known = walk_generation_ == generation_ ? first_ : kEnd;
  // While it is rewritten: a signal handler of the program may leave by longjmp at any point.
  generation_ = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  bool same = true;
  bool has_ids = true;
  std::uint64_t hash = rest < kEnd ? sources_[rest].hash : 0;
  std::size_t index = rest;
  for (std::size_t i = walked.size(); i-- > 0;) {
    --index;
    Source& source = sources_[index];
    const bool is_known = index >= known && source.walked == walked[i] && frames_[index].code_id != 0;
    if (!is_known) {
      source.walked = walked[i];
      frames_[index] = describe_frame(walked[i], writer, lease);
      has_ids &= frames_[index].code_id != 0;
    }
    same &= is_known;
    if (!same) {
      const trace::PythonFrame& frame = frames_[index];
      source.hash =
          mix(hash, std::uint64_t{frame.code_id} << 32 | static_cast<std::uint32_t>(frame.last_instruction_bytes));
    }
    hash = source.hash;
  }
  first_ = index;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  generation_ = walk_generation_;
  return has_ids;
}

void PythonMemo::place(const StackMemo& native, bool has_stack_pointers) noexcept {
  if (generation_ == 0) return;
  bool has_addresses = false;
  for (std::size_t i = first_; i < kEnd; ++i) {
    has_addresses |= sources_[i].walked.eval_address != 0;
    frames_[i].native_index = trace::kNoNativeIndex;
  }
  if (has_addresses && has_stack_pointers)
    place_by_address(native);
  else if (!has_addresses && first_ != kEnd)
    place_by_eval_calls(native);
}

}  // namespace whyrss::shim
