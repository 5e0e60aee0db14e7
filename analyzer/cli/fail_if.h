// `--fail-if 'fork_cow>2GiB'`: a limit on growth, for CI jobs.
#pragma once

#include <cstdint>
#include <string>

#include "report/view.h"
#include "support/result.h"

namespace whyrss {

struct FailIf {
  std::string name;  // a cause's slug, or rss, pss, uss
  bool or_equal = false;
  std::int64_t limit_bytes = 0;
};

Result<FailIf> parse_fail_if(const std::string& text);

// The growth that the limit is compared with: summed over the view's processes. Fails when the recording
// does not know it (PSS was not read).
Result<std::int64_t> growth_of(const FailIf& condition, const View& view);

Result<bool> holds(const FailIf& condition, const View& view);

}  // namespace whyrss
