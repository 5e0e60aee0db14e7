#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "report/wording/format.h"
#include "report/wording/wrap.h"
#include "support/text.h"

namespace whyrss {
namespace {

// 0: it is not set, or no number.
std::size_t columns_variable() {
  const char* text = std::getenv("COLUMNS");
  if (text == nullptr) return 0;
  std::size_t columns = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, columns);
  return error == std::errc{} && stop == end ? columns : 0;
}

// Zeroes: it is no terminal, or does not say.
winsize terminal_size(int fd) {
  winsize size{};
  return isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size : winsize{};
}

}  // namespace

bool takes_escapes(int fd) {
  const char* terminal = std::getenv("TERM");
  return isatty(fd) == 1 && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
}

bool wants_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return takes_escapes(fd) && (no_colour == nullptr || *no_colour == '\0');
}

std::size_t text_columns(int fd) {
  constexpr std::size_t kLeast = 60;  // narrower, tables are no tables any more
  const std::size_t named = columns_variable();
  const std::size_t known = named > 0 ? named : terminal_size(fd).ws_col;
  return known > 0 ? std::max(known, kLeast) : kTextColumns;
}

std::size_t terminal_rows(int fd) { return terminal_size(fd).ws_row; }

std::size_t output_columns(const std::string& output) {
  return output.empty() || output == "-" ? text_columns(STDOUT_FILENO) : kTextColumns;
}

void print_wrapped(const std::string& text, const std::string& first, const std::string& rest) {
  const std::size_t columns = text_columns(STDOUT_FILENO);
  const bool fits = std::ranges::all_of(
      split(text, ' '), [&](const std::string& word) { return text_width(word) + text_width(rest) <= columns; });
  std::fputs((fits ? wrapped(text, first, rest, columns) : first + text + "\n").c_str(), stdout);
}

}  // namespace whyrss
