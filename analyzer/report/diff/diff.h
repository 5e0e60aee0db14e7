// What `whyrss diff A B` tells: two views, of recordings, phases or processes, beside each other. Sums over the
// processes of each. Sizes are bytes.
//
// Lines are found again by function and file; a line number tells lines of one function apart, and may have moved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

enum class DiffState : std::uint8_t { same, added, gone, grown, shrunk };
// Of two runs of one program so much differs by chance: names of temporary files, the environment.
inline constexpr std::int64_t kChanceBytes = 64 * 1024;
// "same", "new", "gone", "grown", "shrunk".
std::string slug_of(DiffState state);

struct DiffFigure {
  std::int64_t a = 0, b = 0;
  double variance = 0;  // of the change, where they are estimates
  // What a and b may have more, at most: of jobs, whose parts do not list all.
  std::int64_t more_a = 0, more_b = 0;
  [[nodiscard]] std::int64_t change() const { return b - a; }
  // The least and the most that the change may be, before sampling errors.
  [[nodiscard]] std::int64_t least_change() const { return b - a - more_a; }
  [[nodiscard]] std::int64_t most_change() const { return b + more_b - a; }
  // `same` where the change is within two standard errors, or may be none; `gone` and `added` where next to nothing is
  // left, or was there.
  [[nodiscard]] DiffState state() const;
  // In percent of A; nothing where that is not above 0.
  [[nodiscard]] std::optional<double> percent() const;
};

struct DiffCause {
  Cause cause = Cause::unknown;
  DiffFigure figure;
};

struct DiffLine {
  Cause cause = Cause::unknown;
  std::string line;  // as code_line, of B where it is there, else of A; a mapping's name where no stack is known
  std::string function, file;  // of B, else of A
  int line_a = 0, line_b = 0;  // 0: not there, or not known
  DiffFigure figure{};
};

struct Diff {
  const View* a = nullptr;
  const View* b = nullptr;
  SiteFigure which = SiteFigure::growth;
  DiffFigure rss{};  // summed over processes, also those that were not there at one time
  // Of all processes together, at the moment when they had most; PSS: nothing where it was not read.
  DiffFigure peak_rss{};
  std::optional<DiffFigure> peak_pss{};
  std::vector<DiffCause> causes{};  // largest change first; sum to rss
  std::vector<DiffLine> lines{};    // largest change first; those of a cause sum to it
};

// The processes of a view that were there in its interval.
std::int64_t count_there(const View& view);
// Whether the memory of one of them at least was read: else all figures are 0, and nothing is known.
bool is_read(const View& view);

Diff build_diff(const View& a, const View& b, SiteFigure which);

}  // namespace whyrss
