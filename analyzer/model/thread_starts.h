// What a thread does in code of others alone, as a pool of threads or a library in threads of its own does it: its
// stacks go on, below a frame that stands for this, with that of the thread that waited meanwhile; where that has no
// line of the user's own files either, with the one that started the thread.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/stack_table.h"

namespace whyrss {

inline constexpr std::string_view kThreadFunction = "<thread started by>", kWaiterFunction = "<while this ran>";

// Below it is the stack of a thread that waited.
inline bool is_waiter_frame(const Frame& frame) {
  return frame.kind == FrameKind::native && frame.function == kWaiterFunction;
}
FrameId waiter_frame(StackTable& stacks);

// Below it is the stack of another thread.
inline bool is_thread_frame(const Frame& frame) {
  return is_waiter_frame(frame) || (frame.kind == FrameKind::native && frame.function == kThreadFunction);
}

// `stack`, a frame that stands for the start of a thread, and `starter`.
StackId in_thread_of(StackTable& stacks, StackId stack, StackId starter);

// Of one program image.
class ThreadStarts {
 public:
  // It outlives this.
  explicit ThreadStarts(StackTable& stacks) : stacks_(&stacks) {}

  // The next thread with that number is started by this one.
  void create(std::uint32_t tid, std::uint32_t creator_tid);
  // From here on `tid` is a thread that was started there.
  void start(std::uint32_t tid, StackId starter);
  // The stack that started a thread, with that which started the thread it is of and so on, up to one that has a line
  // of the user's own files. Where none has, or for the main thread, empty.
  [[nodiscard]] StackId starter_of(std::uint32_t tid) const;
  // The stack itself, if it has such a line, or else with `starter` below it.
  [[nodiscard]] StackId with(StackId stack, StackId starter);
  [[nodiscard]] StackId in_thread(StackId stack, std::uint32_t tid) { return with(stack, starter_of(tid)); }
  // Another image has taken the place of this one.
  void clear();

 private:
  [[nodiscard]] StackId without_waiter(StackId stack);
  [[nodiscard]] bool has_own_line(StackId stack) const;

  StackTable* stacks_;
  std::unordered_map<std::uint32_t, std::uint32_t> creators_;  // of threads that are to start, by tid
  std::unordered_map<std::uint32_t, StackId> starters_;        // by tid
  std::map<std::pair<StackId, StackId>, StackId> known_;       // by stack and starter
};

}  // namespace whyrss
