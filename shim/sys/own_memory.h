// Anonymous memory of the shim itself: straight from the kernel (no hook sees it), not dumped into
// cores, with a PROT_NONE page on both sides so that it never merges with the program's mappings and a
// reader can tell it apart as cause `whyrss`. Async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whyrss::shim {

// Zero-filled, readable and writable, rounded up to pages, sparse (MAP_NORESERVE); nullptr when it does
// not fit into RLIMIT_AS. The caller reports it with report_own_memory (own_memory_events.h).
void* map_own(std::size_t size_bytes) noexcept;

// Gives back what map_own returned, with its guard pages.
void unmap_own(void* memory, std::size_t size_bytes) noexcept;

// The same for what each thread has: of several threads at once, and kept for the next, without guard pages in between.
// Where many threads start and none of them rests, every change of the mappings costs each a turn of all the others.
void* map_own_of_thread(std::size_t size_bytes) noexcept;
void unmap_own_of_thread(void* memory, std::size_t size_bytes) noexcept;

// All of it reads as zero again; gives its pages back where that can be asked for.
void empty_own(void* memory, std::size_t size_bytes) noexcept;

// Once, before the kernel is closed to us (trace/own_calls.h): what map_own hands out from then on, without guard
// pages; what is given back goes to the next who wants as much. nullptr: there is one, or it does not fit.
inline constexpr std::size_t kReserveBytes = std::size_t{8} << 20;
void* map_reserve() noexcept;

}  // namespace whyrss::shim
