// The stacks of two views beside each other, for the icicle of the page of `whyrss diff`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/diff/diff.h"

namespace whyrss {

// A frame of A, of B or of both; found again as lines are (report/diff/diff.h).
struct DiffFrame {
  enum class Kind : std::uint8_t { python, native, mapping };  // mapping: no stack
  Kind kind = Kind::native;
  std::string label;           // as code_line, of B where it is there
  std::string file;            // or the library, or the mapping
  int line_a = 0, line_b = 0;  // 0: not there, or not known
};

struct DiffStack {
  Cause cause = Cause::unknown;
  std::vector<std::size_t> frames;  // outermost first; empty: nothing is known
  DiffFigure figure{};
};

struct DiffStacks {
  std::vector<DiffFrame> frames;
  std::vector<DiffStack> stacks;  // those of a cause sum to it
};

DiffStacks diff_stacks(const View& a, const View& b, SiteFigure which);

// Which file of A is which of B: the same, else one of the same name, the paths most alike first.
std::vector<std::pair<std::string, std::string>> pair_files(const std::vector<std::string>& a,
                                                            const std::vector<std::string>& b);

}  // namespace whyrss
