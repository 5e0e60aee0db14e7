// Blocks of the malloc family that the fast path did not count. As observe.h: safe in any thread, in signal handlers
// and before main.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/events/caller.h"

namespace whyrss::shim {

// A block that a heap function returned and the fast path did not count; `requested` bytes. Large ones and the
// sampled of the others are logged.
void observe_allocate(const Caller& caller, const void* block, std::size_t requested) noexcept;
// Before the real release.
enum class Released : std::uint8_t {
  unknown,  // large, from before us, or there was no room for it
  counted,  // the block was only counted
  large,    // it had been logged, and now its release is
  sample,   // counted, and logged
  compact,  // counted, in exact mode: logged without looking whether its allocation was
};
Released observe_release(const void* block) noexcept;
// The realloc announced by observe_release(block) failed.
void observe_release_undone(const void* block, Released released) noexcept;
// A small block was released that the thread cannot count in its own pages (heap/liveness.h), but may from now on.
void observe_distant_release(const void* block) noexcept;

}  // namespace whyrss::shim
