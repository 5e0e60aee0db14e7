#include "report/wording/wrap.h"

#include <algorithm>

#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr std::string_view kGap = "…";

// Where the code point of that number begins.
std::size_t offset_of(std::string_view text, std::size_t number) {
  std::size_t at = 0;
  for (; at < text.size(); ++at)
    if (!is_continuation(text[at]) && number-- == 0) return at;
  return at;
}

std::size_t columns_behind(const std::string& indent, std::size_t columns) {
  return std::max<std::size_t>(columns - std::min(columns, text_width(indent)), 1);
}

}  // namespace

std::string middle_shortened(const std::string& text, std::size_t columns) {
  const std::size_t width = text_width(text);
  if (width <= columns) return text;
  if (columns == 0) return "";
  const std::size_t tail = (columns - 1) / 2, head = columns - 1 - tail;
  return text.substr(0, offset_of(text, head)).append(kGap).append(text, offset_of(text, width - tail));
}

std::vector<std::string> wrapped_lines(const std::string& text, std::size_t first_columns, std::size_t columns) {
  std::vector<std::string> lines;
  std::string line;
  std::size_t width = 0;
  bool has_begun = false;
  const auto end_line = [&] {
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
    line.clear();
    width = 0;
    has_begun = false;
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    const auto limit = [&] { return lines.empty() ? first_columns : columns; };
    if (has_begun && width + 1 + text_width(word) > limit() && line.find_first_not_of(' ') != std::string::npos)
      end_line();
    if (word.empty() && !has_begun && !lines.empty()) continue;
    const std::size_t before = has_begun ? width + 1 : 0;
    const std::string shown = middle_shortened(word, limit() - std::min(limit(), before));
    line += (has_begun ? " " : "") + shown;
    width = before + text_width(shown);
    has_begun = true;
  }
  end_line();
  return lines;
}

std::string wrapped(const std::string& text, const std::string& first, const std::string& rest, std::size_t columns) {
  std::string out;
  for (const std::string& line : wrapped_lines(text, columns_behind(first, columns), columns_behind(rest, columns)))
    out.append(out.empty() ? first : rest).append(line).append("\n");
  return out;
}

}  // namespace whyrss
