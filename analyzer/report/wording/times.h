// Two times beside each other.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "report/wording/format.h"

namespace whyrss {

// "from 0.4 s to 9.8 s", with three digits where they would read the same.
inline std::string two_times(std::string_view before, double from_s, std::string_view between, double to_s) {
  const bool alike = seconds_text(from_s) == seconds_text(to_s);
  return fmt::format("{} {} {} {}", before, alike ? fmt::format("{:.3f} s", from_s) : seconds_text(from_s), between,
                     alike ? fmt::format("{:.3f} s", to_s) : seconds_text(to_s));
}

}  // namespace whyrss
