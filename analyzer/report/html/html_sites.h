// The sites of all processes over time, and who touched them, as columns of the HTML page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/account.h"
#include "report/html/html_columns.h"
#include "report/html/html_data.h"
#include "report/html/html_stacks.h"

namespace whyrss {

struct HtmlSitesLeftOut {
  std::size_t sites = 0, shares = 0;
  std::int64_t most_bytes = 0;  // that one of the sites ever held
};

// `shown`: of each process which snapshots. What is left out of the sites is summed, per process and cause.
HtmlSitesLeftOut write_sites(const RecordingAccount& recording, const std::vector<std::vector<std::uint32_t>>& shown,
                             const HtmlBounds& bounds, HtmlStacks& stacks, HtmlStrings& strings, HtmlColumns& columns);

}  // namespace whyrss
