// What is done with CPython beside reading its frames: its memory is followed (python_memory.h), and its end
// (python_end.h).
#pragma once

namespace whyrss::shim {

// Before stacks_start, which looks for the interpreter.
void follow_python() noexcept;

}  // namespace whyrss::shim
