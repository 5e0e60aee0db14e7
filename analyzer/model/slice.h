// A part of a process's resident memory that comes from one place in the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/cause.h"
#include "model/stack_table.h"

namespace whyrss {

// Where a slice of resident memory comes from. Equal sites are the same place in the program.
struct Site {
  Cause cause = Cause::unknown;
  StackId stack = kEmptyStack;  // the call that mapped or allocated it; empty: not recorded
  std::string mapping{};        // path or [name] of the mapping, "" if nameless
  bool in_large_block = false;  // fork_cow, fork_shared: within an ancestor's large block, where no object begins
  friend auto operator<=>(const Site&, const Site&) = default;
};

// Who made a part of a slice resident: the first access since it was last absent, or the write that copied it.
struct TouchShare {
  StackId stack = kEmptyStack;
  std::int64_t bytes = 0;
  double variance = 0;     // of `bytes`, in bytes squared: they are an estimate from sampled page faults
  bool by_kernel = false;  // within a call, as counted around it: read() into fresh memory, MAP_POPULATE, mlock
  friend bool operator==(const TouchShare&, const TouchShare&) = default;
};

// Which call gave up a part of a lazy_free slice with MADV_FREE.
struct AdviceShare {
  StackId stack = kEmptyStack;
  std::int64_t bytes = 0;
  friend bool operator==(const AdviceShare&, const AdviceShare&) = default;
};

struct Slice {
  Site site;
  std::int64_t bytes = 0;
  std::int64_t exclusive_bytes = 0;  // of them mapped by this process alone (USS)
  double variance = 0;               // of `bytes`, in bytes squared, where it is an estimate from samples
  std::int64_t huge_bytes = 0;       // zeros on 2 MiB pages: resident, as far as is known, only for those' size
  // heap_live, anonymous: what of the line's large blocks and mappings is not resident, as it was not touched yet or
  // went again. They may grow by so much without another call.
  std::int64_t untouched_bytes = 0;
  std::vector<TouchShare> touched{};   // largest first; together at most `bytes`, what touched the rest is not known
  std::vector<AdviceShare> advised{};  // lazy_free only: largest first, sums to `bytes`
};

}  // namespace whyrss
