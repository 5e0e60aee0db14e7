// Whose code a native frame is: what a line of it tells about who asked for memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/stack_table.h"

namespace whyrss {

// In the order in which frames are to blame; within one kind the innermost is.
enum class NativeCode : std::uint8_t {
  program,          // the executable, and libraries that no system folder holds
  program_offset,   // the same without a name: stripped, or its file is gone
  library,          // of a system folder, or source that a package manager brought
  library_offset,   // the same without a name
  language,         // headers of C++, the libraries of C++, Rust and Go
  runtime,          // libc, the loader, the interpreter of Python
  allocator,        // malloc, je_arena_malloc ...: what stands inside of it is of the allocator, whatever its name
  memory_or_start,  // wrappers of allocators, and what calls main() or the function of a thread
  unknown,          // libc's and the like without a name
  nowhere,          // in no module: code made at run time
};
NativeCode native_code(const Frame& frame, const std::string& module_path);

// By the name of its file.
bool is_shared_library(std::string_view module_path);
// Libraries that serve or pass on memory for others; naming them would not help anyone.
bool serves_others(std::string_view module_path);
// The interpreter of Python, and the extension modules that come with it.
bool is_python_interpreter(std::string_view module_path);
// _start, __libc_start_main, start_thread ...
bool starts_program(std::string_view function);
// malloc, operator new, je_arena_malloc ...
bool is_allocator_function(std::string_view function);

// A demangled name without what it returns: "std::vector<int>::reserve(unsigned long)" of
// "void std::vector<int>::reserve(unsigned long)".
std::string_view without_return_type(std::string_view function);

}  // namespace whyrss
