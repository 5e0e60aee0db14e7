#include "model/thread_starts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "model/python_path.h"

namespace whyrss {

FrameId waiter_frame(StackTable& stacks) {
  return stacks.intern(Frame{.function = std::string(kWaiterFunction), .file = {}});
}

StackId in_thread_of(StackTable& stacks, StackId stack, StackId starter) {
  std::vector<FrameId> frames = stacks[stack];
  frames.push_back(stacks.intern(Frame{.function = std::string(kThreadFunction), .file = {}}));
  const std::vector<FrameId> below = stacks[starter];
  frames.insert(frames.end(), below.begin(), below.end());
  return stacks.intern(frames);
}

void ThreadStarts::create(std::uint32_t tid, std::uint32_t creator_tid) { creators_[tid] = creator_tid; }

void ThreadStarts::start(std::uint32_t tid, StackId starter) {
  const auto creator = creators_.extract(tid);
  starters_.erase(tid);  // of one that has ended
  starter = without_waiter(starter);
  if (!creator.empty()) starter = in_thread(starter, creator.mapped());
  if (has_own_line(starter)) starters_.emplace(tid, starter);
}

StackId ThreadStarts::starter_of(std::uint32_t tid) const {
  const auto found = starters_.find(tid);
  return found == starters_.end() ? kEmptyStack : found->second;
}

StackId ThreadStarts::with(StackId stack, StackId starter) {
  if (starter == kEmptyStack || stack == kEmptyStack) return stack;
  const auto [known, is_new] = known_.try_emplace({stack, starter}, stack);
  if (is_new && !has_own_line(stack)) known->second = in_thread_of(*stacks_, stack, starter);
  return known->second;
}

void ThreadStarts::clear() {
  creators_.clear();
  starters_.clear();
  known_.clear();
}

// Where the main thread was when a thread started another one says nothing of that one's work.
StackId ThreadStarts::without_waiter(StackId stack) {
  std::vector<FrameId> frames = (*stacks_)[stack];
  const auto waiter = std::ranges::find_if(frames, [&](FrameId id) { return is_waiter_frame((*stacks_)[id]); });
  if (waiter == frames.end()) return stack;
  frames.erase(waiter, frames.end());
  return stacks_->intern(frames);
}

bool ThreadStarts::has_own_line(StackId stack) const {
  const std::vector<FrameId> frames = (*stacks_)[stack];
  return std::ranges::any_of(frames, [&](FrameId id) {
    const Frame& frame = (*stacks_)[id];
    return frame.kind == FrameKind::python && python_origin(frame.file) == PythonOrigin::user;
  });
}

}  // namespace whyrss
