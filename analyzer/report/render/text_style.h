// How reports for people are written.
#pragma once

#include <cstddef>

#include "report/wording/wrap.h"

namespace whyrss {

struct TextStyle {
  bool colour = false;
  std::size_t top = 10;                // lines of code, and rows of a list, shown at most
  bool stacks = false;                 // also the callers of the lines with the most growth
  std::size_t columns = kTextColumns;  // of a line, at most
  bool by_touch = false;   // lines that made the memory resident instead of those that mapped or allocated it
  std::size_t lines = 30;  // of the short answer, at most, where its first block leaves room
};

}  // namespace whyrss
