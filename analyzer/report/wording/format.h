// Figures and names as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/printable.h"

namespace whyrss {

// "517 MiB", "9.4 MiB", "120 KiB", "12.3 GiB". Three digits are enough to act on.
std::string size_text(std::int64_t bytes);
// The same with its sign: "+517 MiB".
std::string growth_text(std::int64_t bytes);
// For columns in MiB: "517.2".
std::string mib(std::int64_t bytes);
inline std::string mib_or_dash(const std::optional<std::int64_t>& bytes) { return bytes ? mib(*bytes) : "-"; }
// "9.8 s"
std::string seconds_text(double seconds);

// At most `columns` code points; longer text ends in "...".
std::string shortened(const std::string& text, std::size_t columns);
// Of a code point in UTF-8 all bytes but its first.
inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }
// Code points, close enough to columns.
std::size_t text_width(std::string_view text);

}  // namespace whyrss
