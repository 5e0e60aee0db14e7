// Reports for people. Plain UTF-8 lines, at most about 120 columns; colour only when asked for.
#pragma once

#include <string>
#include <vector>

#include "report/verdict.h"
#include "report/view.h"

namespace whyrss {

struct TextStyle {
  bool colour = false;
  std::size_t top = 10;   // lines of code, and rows of a list, shown at most
  bool stacks = false;    // also the callers of the lines with the most growth
  bool by_touch = false;  // lines that made the memory resident instead of those that mapped or allocated it
};

// The answer: one block per process that matters, its verdicts below. What `record` prints at the end.
std::string render_short(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style);

// The answer, then the evidence: causes, lines, processes, what was lost, what could not be told.
std::string render_text(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style);

}  // namespace whyrss
