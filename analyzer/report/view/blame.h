// Which line of a stack to name: the innermost one that the reader can change.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/account.h"

namespace whyrss {

// Python first, innermost of: the user's own code; a program that was installed as a package
// (attribute/program_code.h), and the script that starts it; other packages; code compiled from strings (dataclasses);
// the standard library; frozen modules. Then native frames, by native_code.h: the program's own, others of a name, and
// only where nothing else is known functions of allocators and what starts a program or thread. Null: nothing in the
// stack is known.
const Frame* blamed_frame(const StackTable& stacks, StackId stack);

// The native line by which Python code that is to blame got its memory: the innermost one of the program's own
// libraries and extension modules. Null: it has none, or their lines are not known.
const Frame* native_line_frame(const StackTable& stacks, StackId stack);

// The lines of the program's own that called the function to blame, innermost first, of the same kind, each of another
// function than the one before; at most `kMostCallers`. None where the line to blame is not the program's own.
constexpr std::size_t kMostCallers = 4;
std::vector<const Frame*> calling_frames(const StackTable& stacks, StackId stack);

// Who made the memory, if not the line of that frame itself: another thread while it ran, or one that it started
// (model/thread_starts.h), or a process that multiprocessing forked there, which goes on with the stack of the line.
enum class DoneBy : std::uint8_t { itself, other_thread, started_thread, started_process };
DoneBy done_by(const StackTable& stacks, StackId stack);

// "file.py:41 in load", "json/decoder.py:355 in raw_decode" of a package or the standard library, "function
// (library.so)"; "library.so+0x1a2b" of an address without a name, as addr2line takes it; "" for null.
std::string code_line(const StackTable& stacks, const Frame* frame);
inline std::string blamed_line(const StackTable& stacks, StackId stack) {
  return code_line(stacks, blamed_frame(stacks, stack));
}

// Whether an allocation with this stack holds Python objects: Python code asked for it, and nothing but
// the interpreter, its own extension modules, libc and the allocator lies between the code and the
// memory; or the interpreter asked for itself. numpy and the like allocate their buffers from Python code too, but from
// a library of their own.
bool is_python_object(const StackTable& stacks, StackId stack);

// Whether it holds objects that multiprocessing unpickled: arguments of a process or a task, items of a queue; or the
// results of tasks of a pool or an executor.
enum class Received : std::uint8_t { no, item, result };
Received received_as(const StackTable& stacks, StackId stack);

// What imports modules: importlib's own code.
bool is_importer(const Frame& frame);
// Of it, what others call too, as py_compile does: by itself it imports nothing.
bool is_import_helper(const Frame& frame);
// The first function of a process that multiprocessing started. After a fork the stack of the parent lies below it.
bool begins_process(const Frame& frame);

// A frame of the module whose import allocated, mapped or wrote this; of importlib itself where it has none yet. The
// import stands between the memory and the innermost line of the program's own code: a table that a module of the
// program builds while it is imported is the program's. Null: no import did.
const Frame* imported_frame(const StackTable& stacks, StackId stack);

std::string base_name(const std::string& path);

}  // namespace whyrss
