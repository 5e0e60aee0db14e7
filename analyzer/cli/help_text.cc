#include "cli/help_text.h"

#include <algorithm>
#include <vector>

#include "report/wording/format.h"
#include "report/wording/wrap.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kMeaningColumn = 30;  // of CLI11

// Where the text begins that goes on in the next line: behind the name of an option or a command.
std::size_t text_begin(const std::string& line) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  if (const std::size_t gap = line.find("  ", indent); gap != std::string::npos)
    return std::min(line.find_first_not_of(' ', gap), line.size());
  const bool has_meaning = indent > 0 && indent < kMeaningColumn && line.size() > kMeaningColumn &&
                           line[kMeaningColumn - 1] == ' ' && line.find(' ', indent) < kMeaningColumn - 1;
  return has_meaning ? kMeaningColumn : indent;
}

std::size_t longest_word(const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& word : split(text, ' ')) longest = std::max(longest, text_width(word));
  return longest;
}

// A list of values that fits no line has blanks to be broken at.
std::string with_blanks(const std::string& text, std::size_t columns) {
  std::vector<std::string> words = split(text, ' ');
  for (std::string& word : words)
    if (text_width(word) > columns) word = join(split(word, ','), ", ");
  return join(words, " ");
}

}  // namespace

std::string wrapped_help(const std::string& text, std::size_t columns) {
  std::string out;
  bool is_example = false;
  for (const std::string& line : split(text, '\n')) {
    is_example |= line == "Examples:";
    if (is_example || text_width(line) <= columns) {
      out += line + "\n";
      continue;
    }
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size()), begin = text_begin(line);
    const std::string meaning = with_blanks(line.substr(begin), columns - std::min(begin, columns));
    const std::string below(begin == indent && indent > 0 && indent < kMeaningColumn ? begin + 4 : begin, ' ');
    if (longest_word(meaning) + below.size() <= columns) {
      out += wrapped(meaning, line.substr(0, begin), below, columns);
      continue;
    }
    const std::string deep(std::min(indent + 4, columns / 2), ' ');  // what it means does not fit beside it
    if (begin > indent) out += line.substr(0, line.find_last_not_of(' ', begin - 1) + 1) + "\n";
    out += wrapped(meaning, deep, deep, columns);
  }
  if (!text.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace whyrss
