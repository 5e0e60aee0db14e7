// Where CPython keeps what we read, per minor version: byte offsets in release builds with a GIL on
// x86-64. They do not move between patch releases.
// Source: offsetof() over Include/internal/pycore_frame.h, cpython/pystate.h, cpython/code.h,
// cpython/unicodeobject.h of every version. python_find.cc checks a row against the interpreter's own
// static types before it is used.
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

// All offsets in bytes; 0: this version has no such field (no field used here is the first one, except
// where said).
struct PythonLayout {
  std::uint8_t minor;
  FrameFamily family;

  // tp_basicsize of PyCode_Type, PyGen_Type, PyFrame_Type, PyUnicode_Type. PyGen ends with a frame
  // from 3.11 on, so that its size proves the frame's.
  std::array<std::uint16_t, 4> basic_sizes;

  // PyThreadState. `innermost`: frame (3.8 to 3.10), cframe (3.11, 3.12), current_frame (3.13).
  std::uint16_t thread_id, native_thread_id, innermost;
  std::uint16_t cframe, root_cframe, base_frame;
  // CFrame; current_frame is the first field in 3.12.
  std::uint16_t cframe_current, cframe_previous;

  // PyFrameObject or _PyInterpreterFrame; code is the first field from 3.12 on.
  std::uint16_t frame_code, frame_previous, frame_instruction, frame_owner, frame_is_entry;

  // PyCodeObject.
  std::uint16_t code_first_line, code_flags, code_file, code_name, code_qualname, code_line_table;
  std::uint16_t code_first_traceable, code_bytecode;

  // PyUnicodeObject: characters of compact ASCII and other compact strings.
  std::uint16_t ascii_data, compact_data;
};

// The same in every version.
inline constexpr std::size_t kObjectType = 8;
inline constexpr std::size_t kThreadInterpreter = 16;
inline constexpr std::size_t kTypeBasicSize = 32, kTypeDealloc = 48, kTypeMembers = 240;
inline constexpr std::size_t kMemberBytes = 40, kMemberOffset = 16;
inline constexpr std::size_t kTextLength = 16, kTextState = 32;
inline constexpr std::size_t kBytesSize = 16, kBytesData = 32;

// Values of frame_owner.
inline constexpr std::uint8_t kOwnedByGenerator = 1;
inline constexpr std::uint8_t kBoundaryOwner = 3;  // and above: the frame of an eval call itself, no Python code

// clang-format off
inline constexpr std::array<PythonLayout, 8> kPythonLayouts{{
  {.minor = 8, .family = FrameFamily::objects, .basic_sizes = {176, 96, 368, 80},
   .thread_id = 176, .native_thread_id = 0, .innermost = 24, .cframe = 0, .root_cframe = 0, .base_frame = 0,
   .cframe_current = 0, .cframe_previous = 0,
   .frame_code = 32, .frame_previous = 24, .frame_instruction = 104, .frame_owner = 0, .frame_is_entry = 0,
   .code_first_line = 40, .code_flags = 36, .code_file = 104, .code_name = 112, .code_qualname = 0,
   .code_line_table = 120, .code_first_traceable = 0, .code_bytecode = 0, .ascii_data = 48, .compact_data = 72},
  {.minor = 9, .family = FrameFamily::objects, .basic_sizes = {176, 96, 368, 80},
   .thread_id = 176, .native_thread_id = 0, .innermost = 24, .cframe = 0, .root_cframe = 0, .base_frame = 0,
   .cframe_current = 0, .cframe_previous = 0,
   .frame_code = 32, .frame_previous = 24, .frame_instruction = 104, .frame_owner = 0, .frame_is_entry = 0,
   .code_first_line = 40, .code_flags = 36, .code_file = 104, .code_name = 112, .code_qualname = 0,
   .code_line_table = 120, .code_first_traceable = 0, .code_bytecode = 0, .ascii_data = 48, .compact_data = 72},
  {.minor = 10, .family = FrameFamily::objects_cframe, .basic_sizes = {176, 88, 360, 80},
   .thread_id = 176, .native_thread_id = 0, .innermost = 24, .cframe = 48, .root_cframe = 264, .base_frame = 0,
   .cframe_current = 0, .cframe_previous = 8,
   .frame_code = 32, .frame_previous = 24, .frame_instruction = 96, .frame_owner = 0, .frame_is_entry = 0,
   .code_first_line = 40, .code_flags = 36, .code_file = 104, .code_name = 112, .code_qualname = 0,
   .code_line_table = 120, .code_first_traceable = 0, .code_bytecode = 0, .ascii_data = 48, .compact_data = 72},
  {.minor = 11, .family = FrameFamily::entry_flag, .basic_sizes = {184, 152, 120, 80},
   .thread_id = 152, .native_thread_id = 160, .innermost = 56, .cframe = 56, .root_cframe = 336, .base_frame = 0,
   .cframe_current = 8, .cframe_previous = 16,
   .frame_code = 32, .frame_previous = 48, .frame_instruction = 56, .frame_owner = 69, .frame_is_entry = 68,
   .code_first_line = 72, .code_flags = 48, .code_file = 112, .code_name = 120, .code_qualname = 128,
   .code_line_table = 136, .code_first_traceable = 168, .code_bytecode = 184, .ascii_data = 48, .compact_data = 72},
  {.minor = 12, .family = FrameFamily::cframe_boundary, .basic_sizes = {192, 144, 120, 64},
   .thread_id = 136, .native_thread_id = 144, .innermost = 56, .cframe = 56, .root_cframe = 272, .base_frame = 0,
   .cframe_current = 0, .cframe_previous = 8,
   .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 70, .frame_is_entry = 0,
   .code_first_line = 68, .code_flags = 48, .code_file = 112, .code_name = 120, .code_qualname = 128,
   .code_line_table = 136, .code_first_traceable = 176, .code_bytecode = 192, .ascii_data = 40, .compact_data = 56},
  {.minor = 13, .family = FrameFamily::boundary, .basic_sizes = {200, 144, 136, 64},
   .thread_id = 152, .native_thread_id = 160, .innermost = 72, .cframe = 0, .root_cframe = 0, .base_frame = 0,
   .cframe_current = 0, .cframe_previous = 0,
   .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 70, .frame_is_entry = 0,
   .code_first_line = 68, .code_flags = 48, .code_file = 112, .code_name = 120, .code_qualname = 128,
   .code_line_table = 136, .code_first_traceable = 184, .code_bytecode = 200, .ascii_data = 40, .compact_data = 56},
  {.minor = 14, .family = FrameFamily::boundary, .basic_sizes = {208, 152, 152, 64},
   .thread_id = 152, .native_thread_id = 160, .innermost = 72, .cframe = 0, .root_cframe = 0, .base_frame = 0,
   .cframe_current = 0, .cframe_previous = 0,
   .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 74, .frame_is_entry = 0,
   .code_first_line = 68, .code_flags = 48, .code_file = 112, .code_name = 120, .code_qualname = 128,
   .code_line_table = 136, .code_first_traceable = 192, .code_bytecode = 208, .ascii_data = 40, .compact_data = 56},
  {.minor = 15, .family = FrameFamily::boundary, .basic_sizes = {208, 152, 152, 64},
   .thread_id = 176, .native_thread_id = 184, .innermost = 72, .cframe = 0, .root_cframe = 0, .base_frame = 80,
   .cframe_current = 0, .cframe_previous = 0,
   .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 74, .frame_is_entry = 0,
   .code_first_line = 68, .code_flags = 48, .code_file = 112, .code_name = 120, .code_qualname = 128,
   .code_line_table = 136, .code_first_traceable = 192, .code_bytecode = 208, .ascii_data = 40, .compact_data = 56},
}};
// clang-format on

}  // namespace whyrss::shim
