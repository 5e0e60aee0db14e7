// Which line of a stack to name: the innermost one that the reader can change.
#pragma once

#include <string>

#include "model/account.h"

namespace whyrss {

// Python first: the innermost frame of the user's own code; else of an installed package; else of the
// standard library. Then the innermost named native frame outside libc, the allocator and the
// interpreter, if there is one not from the headers of C++ or the library of Rust; then any named native
// frame. Null: nothing in the stack has a name.
const Frame* blamed_frame(const StackTable& stacks, StackId stack);

// "file.py:41 in load", "function (library.so)" ...; "" for null.
std::string code_line(const StackTable& stacks, const Frame* frame);
inline std::string blamed_line(const StackTable& stacks, StackId stack) {
  return code_line(stacks, blamed_frame(stacks, stack));
}

// Whether an allocation with this stack holds Python objects: Python code asked for it, and nothing but
// the interpreter, its own extension modules, libc and the allocator lies between the code and the
// memory. numpy and the like allocate their buffers from Python code too, but from a library of their own.
bool is_python_object(const StackTable& stacks, StackId stack);

// Whether it holds objects that multiprocessing unpickled: arguments of a process or a task, items of a queue.
bool is_received(const StackTable& stacks, StackId stack);

std::string base_name(const std::string& path);

}  // namespace whyrss
