// Anonymous memory of the shim itself: straight from the kernel (no hook sees it), not dumped into
// cores, with a PROT_NONE page on both sides so that it never merges with the program's mappings and a
// reader can tell it apart as cause `whyrss`. Async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whyrss::shim {

// Zero-filled, readable and writable, rounded up to pages, sparse (MAP_NORESERVE); nullptr when it does
// not fit into RLIMIT_AS. The caller reports it with report_own_memory (observe.h).
void* map_own(std::size_t size_bytes) noexcept;

// Gives back what map_own returned, with its guard pages.
void unmap_own(void* memory, std::size_t size_bytes) noexcept;

}  // namespace whyrss::shim
