// Reads rows of tests/unit/data/make_line_table_fixture.py on stdin, decodes their tables as reports do,
// and compares. Prints "N instructions, N differ", and the first that differ.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "decode/line_table.h"
#include "support/text.h"

namespace {

using whyrss::parse_number;
using whyrss::PythonPosition;
using whyrss::take_until;
using whyrss::take_word;

constexpr int kShownDifferences = 5;

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 2 <= hex.size(); i += 2)
    bytes.push_back(std::byte{parse_number<std::uint8_t>(hex.substr(i, 2), 16).value()});
  return bytes;
}

PythonPosition position_from(std::string_view text) {
  PythonPosition position;
  for (int* field : {&position.line, &position.end_line, &position.column, &position.end_column})
    if (!text.empty()) *field = parse_number<int>(take_until(text, ':')).value();
  return position;
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  long instructions = 0, differ = 0;
  std::string row;
  while (std::getline(std::cin, row)) {
    std::string_view rest = row;
    const auto version = parse_number<std::uint32_t>(take_word(rest), 16).value();
    const int first_line = parse_number<int>(take_word(rest)).value();
    const std::vector<std::byte> table = from_hex(take_word(rest));
    take_word(rest);
    const std::string name(take_word(rest));
    for (std::string_view entry = take_word(rest); !entry.empty(); entry = take_word(rest)) {
      const std::string whole(entry);
      const int offset = parse_number<int>(take_until(entry, ':')).value();
      const PythonPosition found = whyrss::python_position(version, table, first_line, offset);
      ++instructions;
      if (found == position_from(entry) || ++differ > kShownDifferences) continue;
      std::printf("%s at %d (name in hex): CPython %s, decoded %d:%d:%d:%d\n", name.c_str(), first_line, whole.c_str(),
                  found.line, found.end_line, found.column, found.end_column);
    }
  }
  std::printf("%ld instructions, %ld differ\n", instructions, differ);
  return differ == 0 ? 0 : 1;
}
