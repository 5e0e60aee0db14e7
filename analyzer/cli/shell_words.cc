#include "cli/shell_words.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "support/printable.h"
#include "support/text.h"

namespace whyrss {

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "_-./,:=+@%^";
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [&](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || kPlain.find(letter) != std::string_view::npos;
  });
  return is_plain ? text : printable(shell_quoted(text));
}

std::string shell_command(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(shell_word(word));
  return join(quoted, " ");
}

}  // namespace whyrss
