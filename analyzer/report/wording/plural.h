// Nouns in number.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace whyrss {

// "line" of one, "lines" and "processes" of others.
inline std::string in_number(std::uint64_t count, std::string_view noun) {
  return fmt::format("{}{}", noun, count == 1 ? "" : noun.ends_with('s') ? "es" : "s");
}

// "1 more line", "12 more lines".
inline std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}", count, in_number(count, noun));
}

}  // namespace whyrss
