// Whose some addresses are, summed by the stack that mapped or allocated them.
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/evidence.h"

namespace whyrss {

// The bytes of `ranges` by the stack that owns them, sorted by stack; unowned ones by the empty stack.
struct StackBytes {
  StackId stack = kEmptyStack;
  std::int64_t bytes = 0;
  friend bool operator==(const StackBytes&, const StackBytes&) = default;
};
std::vector<StackBytes> bytes_by_stack(const std::vector<Range>& ranges, const std::vector<OwnedRange>& owned);

}  // namespace whyrss
