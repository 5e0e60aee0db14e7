// What the HTML page knows of a recording: the figures of the report, and over time what each site, cause and process
// held, so that the page can tell of any interval what `report --from --to` would.
//
// Layout: the length of the header in decimal, a newline, the header (JSON), then the columns that its table
// "columns" lists. A row of a table is one entry in each of its columns. Series are stored as changes: at which of the
// process's snapshots, and by how many bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// What is kept at most. Sites beyond it are summed into one row per process and cause, so that no total changes.
struct HtmlBounds {
  std::size_t snapshots = 100'000;  // of all processes; the peaks, the first and the last of each always stay
  std::size_t sites = 60'000;
  std::size_t changes = 1'000'000;  // of sites, and half as many of those who touched them
  std::size_t stack_nodes = 400'000;
  std::size_t shares = 60'000;  // who touched or gave up parts of sites
  std::size_t copies = 60'000;
  std::size_t polls = 150'000;
  std::size_t picture_entries = 600'000;  // PageMap::entries()
  std::size_t family_moments = 2'000;     // at which PSS of all processes together is given

  [[nodiscard]] HtmlBounds halved() const;
};

// `view` is of the whole recording and of all its processes.
std::string html_data(const View& view, const std::vector<Verdict>& verdicts, const HtmlBounds& bounds);

}  // namespace whyrss
