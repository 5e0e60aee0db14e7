// CPython's own allocator for small objects (pymalloc, Objects/obmalloc.c): it maps arenas, cuts them into pools of
// blocks of one size, and tells malloc nothing. Its arenas are marked page by page (pymalloc_pages.h), so that a reader
// finds how full they are. Its objects are logged one by one in exact mode and sampled else, but with
// python_objects=off, by the allocators that CPython lets anybody set. Free-threaded builds have mimalloc in its place:
// nothing is wrapped there.
#pragma once

#include <cstdint>

#include "shim/events/caller.h"
#include "shim/events/mapping.h"
#include "shim/events/thread_state.h"
#include "shim/stacks/python_layout.h"
#include "shim/stacks/python_library.h"

namespace whyrss::shim {

// Before the interpreter makes its first arena, or while it does: `first_is_coming` when this runs below the mapping
// of that arena.
void wrap_python_memory(const Library& library, const PythonLayout& layout, bool first_is_coming) noexcept;

// With the GIL held: the wrappers of the object domains are taken away, until they are set again. False: there are
// none, or the program has set others before them since.
bool set_object_wrappers_aside() noexcept;
void set_object_wrappers_again() noexcept;

// The interpreter takes itself down. From 3.12 on one that is started again begins with allocators of its own
// (_PyRuntimeState_Init in CPython's pystate.c): they are wrapped below its first arena, or as it is seen to run where
// the old one has left it arenas.
void await_next_interpreter() noexcept;
void wrap_next_interpreter() noexcept;

// A mapping whose stack was just taken; the thread is entered and Busy held by the caller. True: it is the arena that
// was coming, and is marked.
bool is_first_python_arena(ThreadState& thread, const Caller& caller, const Mapping& mapping) noexcept;

}  // namespace whyrss::shim
