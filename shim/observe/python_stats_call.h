// sys._debugmallocstats() prints nothing while another allocator stands before CPython's own (_PyMem_PymallocEnabled in
// Objects/obmalloc.c). While it runs ours are set aside: the call holds the GIL, so no other thread allocates then.
#pragma once

#include "shim/stacks/python_library.h"

namespace whyrss::shim {

// Before the interpreter starts.
void find_stats_call(const Library& library) noexcept;
// Stands in for the function of the first interpreter that has one; every call but the first that finds it is free. In
// an interpreter's own thread, with the GIL, where any function of CPython may be called.
void replace_stats_call() noexcept;

}  // namespace whyrss::shim
