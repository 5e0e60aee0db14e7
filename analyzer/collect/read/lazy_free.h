// What of a process was given up with MADV_FREE and is still there: smaps alone tells, per mapping.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "collect/read/page_walk.h"

namespace whyrss {

struct LazyFreeReading {
  bool any = false;
  std::vector<std::byte> payload;  // of a lazy_free frame
};

// After that walk of the process. Nothing when smaps cannot be read to its end, as of a process that is leaving, or the
// walk says of no page where it is.
std::optional<LazyFreeReading> read_lazy_free(pid_t pid, const PageWalk& walk);

}  // namespace whyrss
