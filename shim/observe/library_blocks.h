// Blocks of an allocator inside a library, which serves the library beside malloc. As observe.h: safe in any thread, in
// signal handlers and before main.
#pragma once

#include <cstddef>

#include "shim/events/caller.h"

namespace whyrss::shim {

// A block of `size_bytes` that the library's function at `function` has returned to its caller; nullptr: `caller` is in
// the allocator. Large ones are logged, in exact mode all.
void observe_library_allocate(const Caller& caller, const void* function, const void* block,
                              std::size_t size_bytes) noexcept;
// Before the real release. True: its allocation had been logged, and now its release is.
bool observe_library_release(const void* block) noexcept;
// The resize announced by such a release failed.
void observe_library_release_undone(const void* block) noexcept;

}  // namespace whyrss::shim
