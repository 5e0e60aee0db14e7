// Text as a shell takes it for one word.
#pragma once

#include <string>
#include <vector>

namespace whyrss {

// In single quotes.
std::string shell_quoted(const std::string& text);
// In quotes only where it needs them, and as it may be printed.
std::string shell_word(const std::string& text);
// A command as it is typed.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace whyrss
