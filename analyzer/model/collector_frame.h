// The frame that stands for CPython's cyclic garbage collector, or for a finalizer that it has called: it is in no
// module, and lies on top of the line whose allocation or gc.collect() made it run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

inline constexpr std::string_view kCollectorFunction = "<garbage collector>";

// The same stack with that frame on top.
inline StackId under_collector(StackTable& stacks, StackId stack) {
  std::vector<FrameId> frames = stacks[stack];
  frames.insert(frames.begin(), stacks.intern(Frame{.function = std::string(kCollectorFunction), .file = {}}));
  return stacks.intern(frames);
}

inline bool is_under_collector(const StackTable& stacks, StackId stack) {
  const std::vector<FrameId> frames = stacks[stack];
  return !frames.empty() && stacks[frames.front()].function == kCollectorFunction;
}

}  // namespace whyrss
