#include "report/cow_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "report/blame.h"
#include "report/blame_sums.h"
#include "report/format.h"

namespace whyrss {
namespace {

constexpr std::int64_t kShownBytes = 1024 * 1024;

struct Sum {
  std::int64_t bytes = 0;
  double variance = 0;
};

std::string or_nobody(const std::string& line) { return line.empty() ? "not known" : printable(line); }

}  // namespace

std::vector<std::string> cow_lines(const View& view, std::size_t top) {
  std::vector<std::string> lines;
  for (const ProcessView& process : view.processes) {
    const std::int64_t most = std::max({process.copied, process.copied_by_relatives, process.left_by_relatives});
    if (most < kShownBytes) continue;
    const bool tracked = process.account->write_tracked;
    lines.push_back(
        fmt::format("pid {}: {} copied by itself, {} its own since relatives copied, {} since they ended, {} "
                    "written without a copy{}",
                    process.account->pid, size_text(process.copied), size_text(process.copied_by_relatives),
                    size_text(process.left_by_relatives), tracked ? size_text(process.reused) : "not known",
                    !tracked                  ? " (by exclusive bits and faults: who copied is likely, not certain)"
                    : process.copies_estimate ? " (after the last look by faults: who copied is likely, not certain)"
                                              : ""));
    std::map<std::pair<std::string, std::string>, Sum> sums;
    for (const CowSiteView& site : process.cow_sites) {
      Sum& sum = sums[{blamed_line(view.recording->stacks, site.allocated_at),
                       blamed_line(view.recording->stacks, site.written_at)}];
      sum.bytes += site.copied;
      sum.variance += site.variance;
    }
    std::vector<std::pair<std::pair<std::string, std::string>, Sum>> rows(sums.begin(), sums.end());
    std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
    for (std::size_t i = 0; i < rows.size() && i < top; ++i) {
      const auto& [at, sum] = rows[i];
      if (sum.bytes < kShownBytes || !is_significant(sum.bytes, sum.variance)) break;
      lines.push_back(fmt::format("  {}{} made at: {}; copied at: {}", size_text(sum.bytes),
                                  error_text(sum.bytes, sum.variance), or_nobody(at.first), or_nobody(at.second)));
    }
  }
  return lines;
}

}  // namespace whyrss
