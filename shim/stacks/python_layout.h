// What we read of CPython's structures: one row per version in python_tables.h, byte offsets in release builds
// on x86-64. They do not move between patch releases. python_check.cc compares a row with what the
// interpreter says of itself before anything is read by it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace whyrss::shim {

// How frames hang together; one walk per family (python_walk.cc).
enum class FrameFamily : std::uint8_t {
  objects,          // 3.8, 3.9: PyFrameObject.f_back
  objects_cframe,   // 3.10: the same; a CFrame on the C stack for each
  entry_flag,       // 3.11: _PyInterpreterFrame; is_entry marks the last one of an eval call
  cframe_boundary,  // 3.12: a boundary frame on the C stack ends the frames of an eval call
  boundary,         // 3.13 and later: the same without CFrame
};

// Since 3.13 _PyRuntime begins with offsets (_Py_DebugOffsets): the one at `at` has this value.
struct SelfDescribed {
  std::uint16_t at, value;
};

// 0: this version has no such field, or it is the first one (which is said).
struct PythonLayout {
  std::uint8_t minor = 0;
  bool free_threaded = false;
  FrameFamily family{};

  // tp_basicsize of PyCode_Type, PyGen_Type, PyFrame_Type, PyUnicode_Type. PyGen ends with a frame
  // from 3.11 on, so that its size proves the frame's.
  std::array<std::uint16_t, 4> basic_sizes{};

  // PyThreadState, which begins with a link to the previous one. `innermost`: frame (3.8 to 3.10), cframe (3.11, 3.12),
  // current_frame (3.13). base_frame: a pointer to the outermost boundary.
  std::uint16_t thread_next = 0, thread_interpreter = 0, thread_id = 0, native_thread_id = 0, innermost = 0;
  std::uint16_t cframe = 0, root_cframe = 0, base_frame = 0;
  // CFrame; current_frame is the first field in 3.12.
  std::uint16_t cframe_current = 0, cframe_previous = 0;
  // PyThreadState: of this word some of these bits are set while a thread is attached. Until 3.11 _PyRuntime says which
  // one is.
  std::uint16_t attached_word = 0;
  std::uint32_t attached_bits = 0;

  // An int that is not 0 while the cyclic collector runs, in PyInterpreterState, or in _PyRuntime (3.8). Until 3.12 its
  // lists begin at `generations`, and `first_generation` points to them. Since 3.13 _PyRuntime says where it is, at
  // these two places: the collector's offset in the interpreter, and the int's in the collector.
  std::uint16_t collecting = 0, generations = 0, first_generation = 0;
  std::uint16_t says_collector = 0, says_collecting = 0;

  // PyFrameObject or _PyInterpreterFrame; code is the first field from 3.12 on. copy_index: which of the
  // code's copies of its bytecode, one per thread, the frame runs.
  std::uint16_t frame_previous = 0, frame_code = 0, frame_instruction = 0, frame_owner = 0, frame_is_entry = 0;
  std::uint16_t frame_copy_index = 0;

  // PyCodeObject; thread_copies points to an array whose pointers begin at copies_entries.
  std::uint16_t code_first_line = 0, code_flags = 0, code_file = 0, code_name = 0, code_line_table = 0;
  std::uint16_t code_qualname = 0, code_first_traceable = 0, code_bytecode = 0;
  std::uint16_t code_thread_copies = 0, copies_entries = 0;

  // PyObject; the count of a GIL build is the first field. PyTypeObject.
  std::uint16_t object_type = 0, object_local_count = 0, object_shared_count = 0;
  std::uint16_t type_basic_size = 0, type_dealloc = 0, type_members = 0;

  // PyASCIIObject: bits of its state, where the characters of compact ASCII and of other compact strings
  // begin. PyBytesObject.
  std::uint16_t text_length = 0, text_state = 0;
  std::uint8_t text_kind_bit = 0, text_compact_bit = 0, text_ascii_bit = 0;
  std::uint16_t ascii_data = 0, compact_data = 0;
  std::uint16_t bytes_size = 0, bytes_data = 0;

  std::array<SelfDescribed, 28> self_description{};  // ends with {0, 0}
};

// PyMemberDef, the same in every version.
inline constexpr std::size_t kMemberBytes = 40, kMemberOffset = 16;

// Values of frame_owner.
inline constexpr std::uint8_t kOwnedByGenerator = 1;
inline constexpr std::uint8_t kBoundaryOwner = 3;  // and above: the frame of an eval call itself, no Python code

}  // namespace whyrss::shim
