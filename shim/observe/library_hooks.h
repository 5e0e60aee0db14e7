// jemalloc inside a library (Polars, DuckDB, Arrow's second pool) or inside the program: from 5.2 on it calls hooks for
// each block (include/jemalloc/internal/hook.h), which are installed by its mallctl. They cost some 40 ns a call.
//
//   mmap by a new image --note_mapper()--> its file names a ...mallctl --serve_library_hooks()--> installed, or not
//
// mallctl takes the allocator's locks: it is called where allocator_stats.h would call one. Blocks from before are not
// known. A note of the recording says why where it fails.
// The caller of the first two holds Busy and has entered the thread. errno is kept.
#pragma once

#include "shim/events/caller.h"
#include "shim/events/thread_state.h"

namespace whyrss::shim {

// `caller` maps memory that it does not share. Takes milliseconds where the image is new and its file must be read.
void note_mapper(ThreadState& thread, const Caller& caller) noexcept;

// After an event in a slow path.
[[gnu::noinline]] void serve_library_hooks(ThreadState& thread) noexcept;

// What was removed may come again, without hooks.
void library_hooks_after_dlclose() noexcept;
// Another thread may have been installing some.
void library_hooks_after_fork_in_child() noexcept;

}  // namespace whyrss::shim
