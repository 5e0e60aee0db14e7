// CPython's own descriptions of code objects: line tables and strings, as the shim copied them.
// Formats: Objects/lnotab_notes.txt (3.8-3.10), InternalDocs/code_objects.md (3.11 on).
#pragma once

#include <cstdint>
#include <string>

#include "ingest/bytes.h"

namespace whyrss {

// The line of the instruction at `instruction_bytes` in the bytecode; 0 when the table gives it none.
// Before the first instruction (< 0) it is `first_line`. `version_hex` is PY_VERSION_HEX; minor versions
// below 3.8 have the table of 3.8, those above 3.14 that of 3.14.
int python_line(std::uint32_t version_hex, Bytes table, int first_line, std::int32_t instruction_bytes);

// UTF-8 of a str with `kind` bytes per code point (1: Latin-1, 2, 4). What is no character (a lone
// surrogate, as in undecodable file names) becomes U+FFFD.
std::string python_text(Bytes text, std::uint8_t kind);

}  // namespace whyrss
