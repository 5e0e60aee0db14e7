// `--fail-if 'fork_cow>2GiB'`: a limit on growth, for CI jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/diff/diff.h"
#include "report/view/view.h"
#include "support/result.h"

namespace whyrss {

struct FailIf {
  std::string name;  // a cause's slug, or rss, pss, uss
  bool or_equal = false;
  std::int64_t limit_bytes = 0;
};

// The same of a difference: 'heap_live > +10%' or 'rss>64MiB', more in B than in A.
struct DiffFailIf {
  FailIf base;                    // its limit_bytes, where there is no percentage
  std::optional<double> percent;  // of A
};

Result<FailIf> parse_fail_if(const std::string& text);

// The growth that the limit is compared with: summed over the view's processes. Fails when the recording
// does not know it (PSS was not read).
Result<std::int64_t> growth_of(const FailIf& condition, const View& view);

Result<DiffFailIf> parse_diff_fail_if(const std::string& text);
// What the limit is compared with, in A and in B.
Result<DiffFigure> figure_of(const DiffFailIf& condition, const Diff& diff);
bool holds(const DiffFailIf& condition, const DiffFigure& figure);
// Of "": none.
Result<std::optional<DiffFailIf>> optional_diff_fail_if(const std::string& text);
// The exit status of a diff: 3 and a line where it held (`text`: as the user wrote it), 1 and a line where the figure
// is not known.
int end_by(const DiffFailIf& condition, const std::string& text, const Result<DiffFigure>& figure);

Result<bool> holds(const FailIf& condition, const View& view);

}  // namespace whyrss
