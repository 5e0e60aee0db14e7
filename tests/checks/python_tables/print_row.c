/* Compiled with one CPython's own headers: prints the row of shim/stacks/python_tables.h that describes it, one member
   a line, in the order of PythonLayout; what is 0 is left out. -DFREE_THREADED: as its free-threaded build. */
#define Py_BUILD_CORE 1
#include <pyconfig.h>
#ifdef FREE_THREADED
#undef Py_GIL_DISABLED
#define Py_GIL_DISABLED 1
#endif
#include <Python.h>

#if PY_MINOR_VERSION < 11
#include <frameobject.h>
#else
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#endif
#if PY_MINOR_VERSION == 8
#include <internal/pycore_pystate.h>
#else
#include <internal/pycore_interp.h>
#endif
#if PY_MINOR_VERSION >= 13
#include <internal/pycore_runtime.h>
#endif
#if PY_MINOR_VERSION >= 14
#include <internal/pycore_interpframe.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <structmember.h>

#if PY_MINOR_VERSION >= 11
_Static_assert(FRAME_OWNED_BY_THREAD == 0 && FRAME_OWNED_BY_GENERATOR == 1 && FRAME_OWNED_BY_FRAME_OBJECT == 2,
               "python_layout.h has these values");
#if PY_MINOR_VERSION == 12 || PY_MINOR_VERSION == 13
_Static_assert(FRAME_OWNED_BY_CSTACK == 3, "python_layout.h has this value");
#elif PY_MINOR_VERSION >= 14
_Static_assert(FRAME_OWNED_BY_INTERPRETER == 3, "python_layout.h has this value");
#endif
#endif
_Static_assert(sizeof(PyMemberDef) == 40 && offsetof(PyMemberDef, offset) == 16, "python_layout.h has these values");

_Static_assert(offsetof(PyThreadState, prev) == 0, "python_walk.cc has this value");

static void print(const char* name, size_t value) {
  if (value != 0) printf(".%s = %zu\n", name, value);
}

#define FIELD(name, type, member) print(name, offsetof(type, member))

#if PY_MINOR_VERSION >= 13
static int descriptions = 0;

/* Where _PyRuntime says it, and what it must say. */
static void describe(size_t at, size_t value) {
  printf("%s{%zu, %zu}", descriptions++ == 0 ? ".self_description = {{" : ", ", at, value);
}

#define SAYS(group, member, value) describe(offsetof(_Py_DebugOffsets, group.member), value)
#endif

static unsigned lowest_bit(const PyASCIIObject* text) {
  unsigned state;
  memcpy(&state, &text->state, sizeof state);
  return (unsigned)__builtin_ctz(state);
}

static void print_objects(void) {
  FIELD("object_type", PyObject, ob_type);
#ifdef FREE_THREADED
  FIELD("object_local_count", PyObject, ob_ref_local);
  FIELD("object_shared_count", PyObject, ob_ref_shared);
#endif
  FIELD("type_basic_size", PyTypeObject, tp_basicsize);
  FIELD("type_dealloc", PyTypeObject, tp_dealloc);
  FIELD("type_members", PyTypeObject, tp_members);
  FIELD("text_length", PyASCIIObject, length);
  FIELD("text_state", PyASCIIObject, state);
  PyASCIIObject text;
  memset(&text, 0, sizeof text);
  text.state.kind = 1;
  print("text_kind_bit", lowest_bit(&text));
  memset(&text, 0, sizeof text);
  text.state.compact = 1;
  print("text_compact_bit", lowest_bit(&text));
  memset(&text, 0, sizeof text);
  text.state.ascii = 1;
  print("text_ascii_bit", lowest_bit(&text));
  print("ascii_data", sizeof(PyASCIIObject));
  print("compact_data", sizeof(PyCompactUnicodeObject));
  FIELD("bytes_size", PyBytesObject, ob_base.ob_size);
  FIELD("bytes_data", PyBytesObject, ob_sval);
}

static void print_code(void) {
  FIELD("code_first_line", PyCodeObject, co_firstlineno);
  FIELD("code_flags", PyCodeObject, co_flags);
  FIELD("code_file", PyCodeObject, co_filename);
  FIELD("code_name", PyCodeObject, co_name);
#if PY_MINOR_VERSION < 10
  FIELD("code_line_table", PyCodeObject, co_lnotab);
#else
  FIELD("code_line_table", PyCodeObject, co_linetable);
#endif
#if PY_MINOR_VERSION >= 11
  FIELD("code_qualname", PyCodeObject, co_qualname);
  FIELD("code_first_traceable", PyCodeObject, _co_firsttraceable);
  FIELD("code_bytecode", PyCodeObject, co_code_adaptive);
#endif
#if defined(FREE_THREADED) && PY_MINOR_VERSION >= 14
  FIELD("code_thread_copies", PyCodeObject, co_tlbc);
  FIELD("copies_entries", _PyCodeArray, entries);
#endif
}

static void print_frames(void) {
#if PY_MINOR_VERSION < 11
  FIELD("frame_previous", PyFrameObject, f_back);
  FIELD("frame_code", PyFrameObject, f_code);
  FIELD("frame_instruction", PyFrameObject, f_lasti);
#else
  FIELD("frame_previous", _PyInterpreterFrame, previous);
#if PY_MINOR_VERSION < 13
  FIELD("frame_code", _PyInterpreterFrame, f_code);
  FIELD("frame_instruction", _PyInterpreterFrame, prev_instr);
#else
  FIELD("frame_code", _PyInterpreterFrame, f_executable);
  FIELD("frame_instruction", _PyInterpreterFrame, instr_ptr);
#endif
  FIELD("frame_owner", _PyInterpreterFrame, owner);
#if PY_MINOR_VERSION == 11
  FIELD("frame_is_entry", _PyInterpreterFrame, is_entry);
#endif
#if defined(FREE_THREADED) && PY_MINOR_VERSION >= 14
  FIELD("frame_copy_index", _PyInterpreterFrame, tlbc_index);
#endif
#endif
}

static void print_threads(void) {
  FIELD("thread_next", PyThreadState, next);
  FIELD("thread_interpreter", PyThreadState, interp);
  FIELD("thread_id", PyThreadState, thread_id);
#if PY_MINOR_VERSION >= 11
  FIELD("native_thread_id", PyThreadState, native_thread_id);
#endif
#if PY_MINOR_VERSION < 11
  FIELD("innermost", PyThreadState, frame);
#elif PY_MINOR_VERSION < 13
  FIELD("innermost", PyThreadState, cframe);
#else
  FIELD("innermost", PyThreadState, current_frame);
#endif
#if PY_MINOR_VERSION >= 10 && PY_MINOR_VERSION < 13
  FIELD("cframe", PyThreadState, cframe);
  FIELD("root_cframe", PyThreadState, root_cframe);
#endif
#if PY_MINOR_VERSION == 10
  FIELD("cframe_previous", CFrame, previous);
#elif PY_MINOR_VERSION == 11 || PY_MINOR_VERSION == 12
  FIELD("cframe_current", _PyCFrame, current_frame);
  FIELD("cframe_previous", _PyCFrame, previous);
#elif PY_MINOR_VERSION >= 15
  FIELD("base_frame", PyThreadState, base_frame);
#endif
#if PY_MINOR_VERSION == 12
  PyThreadState state;
  memset(&state, 0, sizeof state);
  state._status.active = 1;
  unsigned bits;
  memcpy(&bits, &state._status, sizeof bits);
  FIELD("attached_word", PyThreadState, _status);
  print("attached_bits", bits);
#elif PY_MINOR_VERSION >= 13
  FIELD("attached_word", PyThreadState, state);
  print("attached_bits", UINT32_MAX); /* _Py_THREAD_DETACHED is 0 */
#endif
}

static void print_collector(void) {
#if PY_MINOR_VERSION >= 13
  FIELD("says_collector", _Py_DebugOffsets, interpreter_state.gc);
  FIELD("says_collecting", _Py_DebugOffsets, gc.collecting);
#else
#if PY_MINOR_VERSION == 8
#define COLLECTOR(name, member) FIELD(name, _PyRuntimeState, gc.member)
#else
#define COLLECTOR(name, member) FIELD(name, PyInterpreterState, gc.member)
#endif
  COLLECTOR("collecting", collecting);
  COLLECTOR("generations", generations);
  COLLECTOR("first_generation", generation0);
#endif
}

static void print_self_description(void) {
#if PY_MINOR_VERSION >= 13
  SAYS(thread_state, interp, offsetof(PyThreadState, interp));
  SAYS(thread_state, current_frame, offsetof(PyThreadState, current_frame));
  SAYS(thread_state, thread_id, offsetof(PyThreadState, thread_id));
  SAYS(thread_state, native_thread_id, offsetof(PyThreadState, native_thread_id));
  SAYS(interpreter_frame, previous, offsetof(_PyInterpreterFrame, previous));
  SAYS(interpreter_frame, executable, offsetof(_PyInterpreterFrame, f_executable));
  SAYS(interpreter_frame, instr_ptr, offsetof(_PyInterpreterFrame, instr_ptr));
  SAYS(interpreter_frame, owner, offsetof(_PyInterpreterFrame, owner));
  SAYS(interpreter_frame, localsplus, offsetof(_PyInterpreterFrame, localsplus));
  SAYS(code_object, filename, offsetof(PyCodeObject, co_filename));
  SAYS(code_object, name, offsetof(PyCodeObject, co_name));
  SAYS(code_object, qualname, offsetof(PyCodeObject, co_qualname));
  SAYS(code_object, linetable, offsetof(PyCodeObject, co_linetable));
  SAYS(code_object, firstlineno, offsetof(PyCodeObject, co_firstlineno));
  SAYS(code_object, co_code_adaptive, offsetof(PyCodeObject, co_code_adaptive));
  SAYS(pyobject, ob_type, offsetof(PyObject, ob_type));
  SAYS(bytes_object, ob_size, offsetof(PyBytesObject, ob_base.ob_size));
  SAYS(bytes_object, ob_sval, offsetof(PyBytesObject, ob_sval));
  SAYS(unicode_object, state, offsetof(PyASCIIObject, state));
  SAYS(unicode_object, length, offsetof(PyASCIIObject, length));
  SAYS(unicode_object, asciiobject_size, sizeof(PyASCIIObject));
#if PY_MINOR_VERSION >= 14
#ifdef FREE_THREADED
  SAYS(interpreter_frame, tlbc_index, offsetof(_PyInterpreterFrame, tlbc_index));
  SAYS(code_object, co_tlbc, offsetof(PyCodeObject, co_tlbc));
#endif
#endif
#if PY_MINOR_VERSION >= 15
  SAYS(thread_state, base_frame, offsetof(PyThreadState, base_frame));
  SAYS(unicode_object, compactunicodeobject_size, sizeof(PyCompactUnicodeObject));
#endif
  printf("}}\n");
#endif
}

int main(void) {
#ifdef FREE_THREADED
  const char* free_threaded = "true";
#else
  const char* free_threaded = "false";
#endif
  const char* family = PY_MINOR_VERSION < 10    ? "objects"
                       : PY_MINOR_VERSION == 10 ? "objects_cframe"
                       : PY_MINOR_VERSION == 11 ? "entry_flag"
                       : PY_MINOR_VERSION == 12 ? "cframe_boundary"
                                                : "boundary";
#if PY_MINOR_VERSION < 11
  const size_t code = sizeof(PyCodeObject), generator = sizeof(PyGenObject), frame = sizeof(PyFrameObject);
#else
  const size_t locals = offsetof(_PyInterpreterFrame, localsplus);
  const size_t code = offsetof(PyCodeObject, co_code_adaptive);
  const size_t generator = offsetof(PyGenObject, gi_iframe) + locals;
  const size_t frame = offsetof(PyFrameObject, _f_frame_data) + locals;
#endif
  printf(".minor = %d\n.free_threaded = %s\n.family = FrameFamily::%s\n", PY_MINOR_VERSION, free_threaded, family);
  printf(".basic_sizes = {%zu, %zu, %zu, %zu}\n", code, generator, frame, sizeof(PyUnicodeObject));
  print_threads();
  print_collector();
  print_frames();
  print_code();
  print_objects();
  print_self_description();
  return 0;
}
