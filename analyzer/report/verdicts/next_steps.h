// What a reader can do for a better answer: at a command line, or in a cell of a notebook, whose kernel is recorded
// from its start on and cannot be started as a command.
#pragma once

#include <string_view>

#include "report/view/view.h"

namespace whyrss {

struct NextSteps {
  std::string_view again;             // where the recording broke off
  std::string_view longer;            // where it ended before the first snapshot
  std::string_view snapshot;          // where nothing was read when it mattered
  std::string_view snapshot_at_peak;  // "If the peak is the trouble: ..."
  std::string_view object_lines;      // of CPython's objects only those of their arenas are known
  std::string_view each_object;       // only exact mode knows the line
  std::string_view prove;             // that file cache is reclaimable
  std::string_view other_allocators;
};

const NextSteps& next_steps(const View& view);

}  // namespace whyrss
