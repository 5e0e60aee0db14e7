#include "decode/line_table.h"

#include <cstring>

namespace whyrss {
namespace {

constexpr int kNoLine = 0;

std::int64_t signed_byte(std::byte value) { return static_cast<std::int8_t>(value); }

// Lines and columns are sums of what the table says; a hostile one must not overflow.
int clamped(std::int64_t sum) { return sum > 0 && sum < (1 << 30) ? static_cast<int>(sum) : 0; }

// 3.8, 3.9: (bytecode delta, line delta) pairs; the line holds until the next pair's address.
int line_in_lnotab(Bytes table, int first_line, std::int64_t at) {
  std::int64_t address = 0;
  std::int64_t line = first_line;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    address += static_cast<std::uint8_t>(table[i]);
    if (address > at) break;
    line += signed_byte(table[i + 1]);
  }
  return clamped(line);
}

// 3.10: (range length, line delta) pairs; -128 is a range without a line.
int line_in_ranges(Bytes table, int first_line, std::int64_t at) {
  constexpr std::int64_t kRangeWithoutLine = -128;
  std::int64_t start = 0;
  std::int64_t line = first_line;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    const std::int64_t end = start + static_cast<std::uint8_t>(table[i]);
    const std::int64_t delta = signed_byte(table[i + 1]);
    if (delta != kRangeWithoutLine) line += delta;
    if (at >= start && at < end) return delta == kRangeWithoutLine ? kNoLine : clamped(line);
    start = end;
  }
  return kNoLine;
}

// Numbers of a location entry: six bits a byte, least significant first, bit 6: more follow.
class EntryReader {
 public:
  EntryReader(Bytes table, std::size_t at) : table_(table), at_(at) {}

  std::int64_t byte() { return at_ < table_.size() ? static_cast<std::uint8_t>(table_[at_++]) : 0; }
  std::int64_t number() { return static_cast<std::int64_t>(bits()); }
  std::int64_t signed_number() {  // bit 0 is the sign
    const std::uint64_t value = bits();
    const auto magnitude = static_cast<std::int64_t>(value >> 1);
    return (value & 1) != 0 ? -magnitude : magnitude;
  }

 private:
  std::uint64_t bits() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 60; shift += 6) {
      const auto next = static_cast<std::uint64_t>(byte());
      value |= (next & 63U) << shift;
      if ((next & 64U) == 0) break;
    }
    return value;
  }

  Bytes table_;
  std::size_t at_;
};

// 3.11 on: entries that begin with a byte of bit 7 set: 4 bits of form, 3 bits of length. Forms below
// kOneLine hold three bits of the column.
PythonPosition position_in_locations(Bytes table, int first_line, std::int64_t at) {
  constexpr unsigned kNoLocation = 15, kLong = 14, kNoColumns = 13, kOneLine = 10;
  constexpr std::int64_t kUnitBytes = 2;
  std::int64_t start = 0;
  std::int64_t line = first_line;
  for (std::size_t i = 0; i < table.size();) {
    const auto first = static_cast<std::uint8_t>(table[i]);
    const unsigned form = (first >> 3U) & 15U;
    const std::int64_t end = start + ((first & 7U) + 1) * kUnitBytes;
    EntryReader entry(table, i + 1);
    if (form == kLong || form == kNoColumns)
      line += entry.signed_number();
    else if (form >= kOneLine && form < kNoColumns)
      line += form - kOneLine;
    if (at < end) {
      if (form == kNoLocation || clamped(line) == kNoLine) return {};
      PythonPosition position{.line = clamped(line), .end_line = clamped(line)};
      if (form == kLong) {
        position.end_line = clamped(line + entry.number());
        position.column = clamped(entry.number());
        position.end_column = clamped(entry.number());
      } else if (form >= kOneLine && form < kNoColumns) {
        position.column = clamped(entry.byte() + 1);
        position.end_column = clamped(entry.byte() + 1);
      } else if (form < kOneLine) {
        const std::int64_t packed = entry.byte();
        position.column = clamped(((form << 3U) | (packed >> 4)) + 1);
        position.end_column = clamped(position.column + (packed & 15));
      }
      return position;
    }
    start = end;
    do ++i;
    while (i < table.size() && (static_cast<std::uint8_t>(table[i]) & 0x80U) == 0);
  }
  return {};
}

void append_utf8(std::string& out, std::uint32_t code) {
  constexpr std::uint32_t kReplacement = 0xfffd;
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = kReplacement;
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 63));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 63));
    put(0x80 | (code & 63));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 63));
    put(0x80 | ((code >> 6) & 63));
    put(0x80 | (code & 63));
  }
}

}  // namespace

PythonPosition python_position(std::uint32_t version_hex, Bytes table, int first_line, std::int32_t instruction_bytes) {
  if (instruction_bytes < 0) return {.line = clamped(first_line)};
  const unsigned minor = (version_hex >> 16) & 0xff;
  if (minor < 10) return {.line = line_in_lnotab(table, first_line, instruction_bytes)};
  if (minor == 10) return {.line = line_in_ranges(table, first_line, instruction_bytes)};
  return position_in_locations(table, first_line, instruction_bytes);
}

std::string python_text(Bytes text, std::uint8_t kind) {
  const std::size_t width = kind == 2 || kind == 4 ? kind : 1;
  std::string out;
  out.reserve(text.size() / width);
  for (std::size_t i = 0; i + width <= text.size(); i += width) {
    std::uint32_t code = 0;
    std::memcpy(&code, text.data() + i, width);  // little-endian, as the target
    append_utf8(out, code);
  }
  return out;
}

}  // namespace whyrss
