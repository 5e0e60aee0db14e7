// CPython's own descriptions of code objects: line tables and strings, as the shim copied them.
// Formats: Objects/lnotab_notes.txt (3.8-3.10), InternalDocs/code_objects.md (3.11 on).
#pragma once

#include <cstdint>
#include <string>

#include "decode/bytes.h"

namespace whyrss {

// Where an instruction stands in the source. 0 is "not known" for each: before 3.11 there are lines alone.
struct PythonPosition {
  int line = 0, end_line = 0;
  int column = 0, end_column = 0;  // in UTF-8 bytes, 1 is the line's first; the end is the byte after
  friend bool operator==(const PythonPosition&, const PythonPosition&) = default;
};

// Of the instruction at `instruction_bytes` in the bytecode. Before the first instruction (< 0) it is
// `first_line` alone. `version_hex` is PY_VERSION_HEX; minor versions below 3.8 have the table of 3.8, those
// above 3.14 that of 3.14.
PythonPosition python_position(std::uint32_t version_hex, Bytes table, int first_line, std::int32_t instruction_bytes);

// UTF-8 of a str with `kind` bytes per code point (1: Latin-1, 2, 4). What is no character (a lone
// surrogate, as in undecodable file names) becomes U+FFFD.
std::string python_text(Bytes text, std::uint8_t kind);

}  // namespace whyrss
