// A block that is live: below trace::kLargeBlockBytes usable, or a sample.
#pragma once

#include <cstdint>

#include "attribute/block_turnover.h"
#include "model/stack_table.h"

namespace whyrss {

struct LiveBlock {
  std::uint64_t address = 0;
  std::uint32_t size_bytes = 0;  // usable
  float weight = 1;              // blocks that this one stands for; 1: only itself
  StackId stack = kEmptyStack;
  [[nodiscard]] BlockKind kind() const { return {stack, size_class_of(size_bytes)}; }
  friend bool operator==(const LiveBlock&, const LiveBlock&) = default;
};

}  // namespace whyrss
