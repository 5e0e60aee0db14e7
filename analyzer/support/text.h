// Small pieces of text parsing and printing.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whyrss {

// The whole of `text` as a number, or nothing.
template <typename T = std::int64_t>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Cuts the part before the next `separator` off the front of `rest` (all of it when there is none).
std::string_view take_until(std::string_view& rest, char separator);

// Cuts the next word off the front of `rest`; empty at the end.
std::string_view take_word(std::string_view& rest);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// "0123456789abcdef..." of two words, as sessions are written.
std::string hex32(std::uint64_t high, std::uint64_t low);

}  // namespace whyrss
