// What an allocator says is in use, made comparable with what the shim counted: usable bytes of live blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/account.h"
#include "report/view/view.h"

namespace whyrss {

struct AllocatorFigure {
  std::optional<std::int64_t> allocated;  // nothing: this allocator does not count it (mimalloc)
  std::optional<double> difference;       // (allocated - counted) / the larger of both
};
AllocatorFigure allocator_figure(const AllocatorStats& stats);

// Of the moment when most was live, where a difference says most; nullptr: it was never asked.
const AllocatorStats* fullest_allocator_stats(const ProcessAccount& account);

// A line for the main process, and for others where both counts differ by over 2 %.
std::vector<std::string> allocator_lines(const View& view);

}  // namespace whyrss
