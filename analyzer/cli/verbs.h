// The first words that are no program to record.
#pragma once

#include <array>
#include <string_view>

namespace whyrss {

inline constexpr std::array<std::string_view, 15> kVerbs{"record", "report", "html",    "compare-allocators",
                                                         "prove",  "doctor", "collect", "env",
                                                         "export", "diff",   "reduce",  "merge",
                                                         "top",    "help",   "version"};

}  // namespace whyrss
