// Where the end of CPython begins. CPython calls no hook at the first moment of Py_FinalizeEx, so it is found by what
// comes just before it and just after:
//   1. The code object of the main script is freed when no Python frame is left. Then come exit functions (atexit), if
//      no other thread of Python has to be waited for.
//   2. The handlers of Python's signals are taken out (SIGINT has one): right before all objects are searched for
//      garbage, which writes to the head of each.
//   3. Modules are freed, one by one, before anything that they hold.
// 2 and 3 are the end; 1 is, where 2 or 3 follows soon: an embedding program may run one script after another.
#pragma once

namespace whyrss::shim {

// Before a code object is freed: whether it is that of a script. An interpreter that starts frees some: it is known by
// that, where another one has ended before it.
bool is_end_of_script(const void* code) noexcept;
// When it has been freed.
void note_end_of_script() noexcept;

// At 2 and 3. Does nothing while the interpreter lives.
void note_finalization() noexcept;

}  // namespace whyrss::shim
