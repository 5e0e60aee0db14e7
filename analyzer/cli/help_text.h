// The help of a verb, in the width of the reader's terminal.
#pragma once

#include <cstddef>
#include <string>

namespace whyrss {

// What an option means goes on below where it begins. Lines that fit stay as they are, and so do examples, which are to
// be copied and fit into 71 columns.
std::string wrapped_help(const std::string& text, std::size_t columns);

}  // namespace whyrss
