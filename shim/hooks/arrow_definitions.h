// Arrow's memory pool (mimalloc inside libarrow): since Arrow 25 its calls of the allocator pass three exported names,
// so that a preloaded library sees them. The library comes by dlopen(), often for itself alone (RTLD_LOCAL).
#pragma once

#include "shim/events/caller.h"

namespace whyrss::shim {

struct ArrowEntry {
  const char* name = nullptr;
  void* own = nullptr;  // nullptr: of another name
};

ArrowEntry arrow_entry_named(const char* name) noexcept;

// In loaded images, but ours.
struct Definitions {
  void* first = nullptr;  // nullptr: none has the name
  bool several = false;
};
// Takes the lock of dl_iterate_phdr().
Definitions definitions_of(const ArrowEntry& entry) noexcept;

}  // namespace whyrss::shim
