// What a process copied because it wrote to pages that a fork made shared, seen from the parent's side:
// its own memory, so the cause stays and only `cow.copied` tells.
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/inheritance.h"

namespace whyrss {

// Pages that were shared in `before` and are exclusive in `now`, without those in `elsewhere` (inherited
// ones, and copies that a child made). Never more pages than `most_pages`.
std::vector<Range> own_copies(const std::vector<AnonymousRun>& before, const std::vector<AnonymousRun>& now,
                              const std::vector<Range>& elsewhere, std::uint64_t most_pages, std::uint64_t page_bytes);

// The bytes of `ranges` by the stack that owns them, sorted by stack; unowned ones by the empty stack.
struct StackBytes {
  StackId stack = kEmptyStack;
  std::int64_t bytes = 0;
  friend bool operator==(const StackBytes&, const StackBytes&) = default;
};
std::vector<StackBytes> bytes_by_stack(const std::vector<Range>& ranges, const std::vector<OwnedRange>& owned);

}  // namespace whyrss
