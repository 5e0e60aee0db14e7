// The last lines of a verb's --help.
#pragma once

#include <string>
#include <string_view>

namespace whyrss {

// "Examples:" and two or three lines; "" for a verb that users do not type.
std::string examples_of(std::string_view verb);

}  // namespace whyrss
