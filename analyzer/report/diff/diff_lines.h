// The lines of two views, each with what it was in the other one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/diff/diff.h"

namespace whyrss {

// What is left of a line when its code moves within the file.
struct LinePlace {
  Cause cause = Cause::unknown;
  std::string function, file;
  friend auto operator<=>(const LinePlace&, const LinePlace&) = default;
};
struct LineSum {
  std::string shown;
  std::int64_t bytes = 0;
  double variance = 0;
  std::int64_t more = 0;  // that it may have, at most
};
using LineSums = std::map<int, LineSum>;  // by line number
using LinePlaces = std::map<LinePlace, LineSums>;

// Every sum of both is in one line. In no order.
std::vector<DiffLine> pair_places(LinePlaces a, LinePlaces b);

// The same of sites.
std::vector<DiffLine> diff_lines(const View& a, const View& b, SiteFigure which);

// Line numbers of one function in A and in B, sorted: pairs that belong together, the numbers of those in B all moved
// by the distance that lets most of them agree. kNoLineNumber on one side: it is only on the other.
inline constexpr int kNoLineNumber = -1;
std::vector<std::pair<int, int>> pair_lines(const std::vector<int>& a, const std::vector<int>& b);

// How many names two paths have in common at their ends.
std::size_t common_end(const std::string& a, const std::string& b);

}  // namespace whyrss
