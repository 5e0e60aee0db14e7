// CPython's line tables and strings against CPython's own reading of them: fixtures written by
// data/make_line_table_fixture.py with each version, and fresh ones by the python3 that is found.
#include "decode/line_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/text.h"

namespace whyrss::line_table_test {

// For gtest's messages.
std::ostream& operator<<(std::ostream& out, const PythonPosition& at) {
  return out << at.line << ':' << at.end_line << ':' << at.column << ':' << at.end_column;
}

namespace {

const std::string kData = (std::filesystem::path(__FILE__).parent_path().parent_path() / "data").string();

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 2 <= hex.size(); i += 2)
    bytes.push_back(std::byte{parse_number<std::uint8_t>(hex.substr(i, 2), 16).value()});
  return bytes;
}

std::string utf8_from_hex(std::string_view hex) {
  std::string text;
  for (const std::byte byte : from_hex(hex)) text.push_back(static_cast<char>(byte));
  return text;
}

// "line" or "line:end_line:column:end_column"
PythonPosition position_from(std::string_view text) {
  PythonPosition position;
  for (int* field : {&position.line, &position.end_line, &position.column, &position.end_column})
    if (!text.empty()) *field = parse_number<int>(take_until(text, ':')).value();
  return position;
}

// Returns how many instructions were compared.
int check_fixture(std::istream& in) {
  int instructions = 0;
  std::string row;
  while (std::getline(in, row)) {
    std::string_view rest = row;
    const auto version = parse_number<std::uint32_t>(take_word(rest), 16).value();
    const auto first_line = parse_number<int>(take_word(rest)).value();
    const auto table = from_hex(take_word(rest));
    std::string_view name = take_word(rest);
    const auto kind = parse_number<std::uint8_t>(take_until(name, ':')).value();
    EXPECT_EQ(python_text(from_hex(name), kind), utf8_from_hex(take_word(rest)));
    EXPECT_EQ(python_position(version, table, first_line, -1), PythonPosition{.line = first_line});
    for (std::string_view pair = take_word(rest); !pair.empty(); pair = take_word(rest)) {
      const auto offset = parse_number<std::int32_t>(take_until(pair, ':')).value();
      EXPECT_EQ(python_position(version, table, first_line, offset), position_from(pair))
          << std::hex << version << std::dec << " offset " << offset << " of " << utf8_from_hex(name);
      ++instructions;
    }
  }
  return instructions;
}

class LineTable : public testing::TestWithParam<const char*> {};

TEST_P(LineTable, AgreesWithCPython) {
  std::ifstream in(kData + "/line_tables_" + GetParam() + ".txt");
  ASSERT_TRUE(in.is_open());
  EXPECT_GT(check_fixture(in), 300);
}

INSTANTIATE_TEST_SUITE_P(Versions, LineTable, testing::Values("3.8", "3.9", "3.10", "3.11", "3.12", "3.13"));

TEST(LineTableOfThisMachine, AgreesWithThePythonThatIsFound) {
  const std::string command = "python3 " + kData + "/make_line_table_fixture.py 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  ASSERT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), got);
  if (text.empty()) GTEST_SKIP() << "no python3 of version 3.8 or later on PATH";
  std::istringstream in(text);
  EXPECT_GT(check_fixture(in), 300);
}

TEST(LineTableHostile, NeverReadsOutsideNorHangs) {
  std::uint32_t seed = 9;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> table(round % 40);
    for (std::byte& byte : table) {
      seed = seed * 1664525 + 1013904223;
      byte = static_cast<std::byte>(seed >> 24);
    }
    for (const std::uint32_t version : {0x03080000U, 0x030a0000U, 0x030b0000U, 0x030e0000U, 0xffffffffU, 0U})
      for (const std::int32_t offset : {0, 2, 100, INT32_MAX}) {
        const PythonPosition position = python_position(version, table, INT32_MAX, offset);
        for (const int value : {position.line, position.end_line, position.column, position.end_column})
          EXPECT_GE(value, 0);
      }
  }
}

TEST(PythonText, ReplacesWhatIsNoCharacter) {
  EXPECT_EQ(python_text(from_hex("80dc"), 2), "\xef\xbf\xbd");
  EXPECT_EQ(python_text(from_hex("00f60100"), 4), "\xf0\x9f\x98\x80");
  EXPECT_EQ(python_text(from_hex("ffffffff"), 4), "\xef\xbf\xbd");
  EXPECT_EQ(python_text(from_hex("41"), 2), "");
  EXPECT_EQ(python_text(from_hex("41fc"), 99), "A\xc3\xbc");
}

}  // namespace
}  // namespace whyrss::line_table_test
