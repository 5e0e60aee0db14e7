// What python_find.cc found, for the walk and the code table. Written once, before `usable` is set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/stacks/python_tables.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

using Deallocator = void (*)(void* object);

struct Interpreter {
  std::atomic<bool> usable;
  // Whether the first capture has compared what it reads with what is known from elsewhere.
  std::atomic<bool> verified;
  std::atomic<bool> forked;  // this process is a forked child
  std::size_t row;           // in kPythonLayouts
  const PythonLayout* layout;

  // Exported by CPython: no locks, no allocation, callable without the GIL.
  // PyGILState_GetThisThreadState: this thread's state even without the GIL, nullptr: it has none.
  const std::byte* (*this_thread_state)();
  // _PyThreadState_UncheckedGet, PyThreadState_GetUnchecked: until 3.11 the GIL holder's state, of any thread; then
  // this thread's, nullptr without the GIL.
  const std::byte* (*attached_state)();
  int (*is_finalizing)();
  const void* (*main_interpreter)();
  const void* (*first_interpreter)();  // the youngest
  const void* (*next_interpreter)(const void*);
  const void* (*first_thread)(const void*);  // of an interpreter, its state
  const void* (*next_thread)(const void*);
  const std::byte* runtime;  // _PyRuntime
  std::size_t collecting;    // of the interpreter, or of the runtime (3.8): 0 while it does not run; 0: not known

  std::byte* code_type;
  const std::byte* unicode_type;
  const std::byte* bytes_type;
  Deallocator code_dealloc, module_dealloc;

  trace::PythonRecord record;
  char version[32];
};

extern constinit Interpreter g_python;

class Library;

// What else is done with an interpreter: units above this one set it before anybody looks for CPython
// (python_follow.h). Where it is not set, frames are read and no more.
struct PythonFollowers {
  // As wrap_python_memory (python_memory.h) and replace_stats_call (python_stats_call.h).
  void (*wrap_memory)(const Library& library, const PythonLayout& layout, bool first_is_coming) noexcept;
  void (*replace_stats_call)() noexcept;
  // As the functions of these names in python_end.h.
  bool (*is_end_of_script)(const void* code) noexcept;
  void (*note_end_of_script)() noexcept;
  void (*note_finalization)() noexcept;
};
extern constinit PythonFollowers g_python_followers;

// Native stacks only from now on; the reason is shown in every report.
void python_switch_off(const char* reason) noexcept;

// The PythonRecord, again in a forked child.
void emit_python_record(const trace::Writer& writer, trace::Lease& lease) noexcept;

// In python_code.cc. False: no memory for the table.
bool map_code_table() noexcept;
// What the interpreter needs to start comes with it: "<frozen importlib._bootstrap>".
bool is_of_frozen_module(const void* code) noexcept;
// Has `real` free the code object and forgets its id: its address may come back as another one.
void free_code(void* code, Deallocator real) noexcept;

template <class Value>
[[gnu::always_inline]] inline Value load_at(const void* base, std::size_t offset) noexcept {
  Value value;
  __builtin_memcpy(&value, static_cast<const std::byte*>(base) + offset, sizeof(Value));
  return value;
}

}  // namespace whyrss::shim
