// How wide text is.
#pragma once

#include <algorithm>
#include <string>

#include "report/wording/format.h"
#include "support/text.h"

namespace whyrss {

inline std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (const std::string& line : split(text, '\n')) widest = std::max(widest, text_width(line));
  return widest;
}

}  // namespace whyrss
