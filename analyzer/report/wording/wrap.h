// Text in lines of a bounded width.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace whyrss {

// What a report takes where nothing says how wide the reader's terminal is.
inline constexpr std::size_t kTextColumns = 100;

// At most `columns` code points; of longer text the middle is left out: "/usr/lib/…/libtorch.so".
std::string middle_shortened(const std::string& text, std::size_t columns);

// Broken at blanks into lines of at most `columns`, the first of `first_columns`. A word that fits no line is
// shortened. Blanks at the beginning stay.
std::vector<std::string> wrapped_lines(const std::string& text, std::size_t first_columns, std::size_t columns);

// The same with line breaks, `first` before the first line and `rest` before the others.
std::string wrapped(const std::string& text, const std::string& first, const std::string& rest, std::size_t columns);

}  // namespace whyrss
