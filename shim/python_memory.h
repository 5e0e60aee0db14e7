// CPython's own allocator for small objects (pymalloc, Objects/obmalloc.c): it maps arenas, cuts them into pools of
// blocks of one size, and tells malloc nothing. Its arenas are marked page by page (pymalloc_pages.h), so that a reader
// finds how full they are; in exact mode its objects are logged one by one, and with python_objects=on sampled, by the
// allocators that CPython lets anybody set. Free-threaded builds have mimalloc in its place: nothing is wrapped there.
#pragma once

#include <cstdint>

#include "shim/observe.h"
#include "shim/python_layout.h"
#include "shim/python_library.h"
#include "shim/thread_state.h"

namespace whyrss::shim {

// Before the interpreter makes its first arena, or while it does: `first_is_coming` when this runs below the mapping
// of that arena.
void wrap_python_memory(const Library& library, const PythonLayout& layout, bool first_is_coming) noexcept;

// A mapping whose stack was just taken; the thread is entered and Busy held by the caller. True: it is the arena that
// was coming, and is marked.
bool is_first_python_arena(ThreadState& thread, const Caller& caller, const Mapping& mapping) noexcept;

}  // namespace whyrss::shim
