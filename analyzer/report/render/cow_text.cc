#include "report/render/cow_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"

namespace whyrss {
namespace {

constexpr std::int64_t kShownCopiedBytes = 1024 * 1024;

struct LineSum {
  std::int64_t bytes = 0;
  double variance = 0;
};

std::string or_nobody(const std::string& line) { return line.empty() ? "not known" : printable(line); }

std::int64_t most_copied(const ProcessView& process) {
  return std::max({process.copied, process.copied_by_relatives, process.left_by_relatives});
}

bool is_likely(const ProcessView& process) { return !process.account->write_tracked || process.copies_estimate; }

std::string process_text(const ProcessView& process) {
  std::string text = fmt::format("pid {}: {} copied by itself{}", process.account->pid, size_text(process.copied),
                                 is_likely(process) ? " (likely)" : "");
  const auto add = [&](std::int64_t bytes, const char* what) {
    if (bytes > 0) text += fmt::format(", {} {}", size_text(bytes), what);
  };
  add(process.copied_by_relatives, "its own since relatives copied");
  add(process.left_by_relatives,
      process.copied_by_relatives > 0 ? "since they ended" : "its own since relatives ended");
  if (process.account->write_tracked) add(process.reused, "written without a copy");
  return text;
}

}  // namespace

std::vector<std::string> cow_lines(const View& view, std::size_t top) {
  std::vector<const ProcessView*> processes;
  for (const ProcessView& process : view.processes)
    if (most_copied(process) >= kShownCopiedBytes) processes.push_back(&process);
  if (processes.size() > top)
    std::ranges::stable_sort(processes, std::ranges::greater{},
                             [](const ProcessView* one) { return most_copied(*one); });
  std::vector<std::string> lines;
  std::size_t shown = 0;
  for (; shown < processes.size() && lines.size() < top; ++shown) {
    const ProcessView& process = *processes[shown];
    lines.push_back(process_text(process));
    std::map<std::pair<std::string, std::string>, LineSum> sums;
    for (const CowSiteView& site : process.cow_sites) {
      LineSum& sum = sums[{blamed_line(view.recording->stacks, site.allocated_at),
                           blamed_line(view.recording->stacks, site.written_at)}];
      sum.bytes += site.copied;
      sum.variance += site.variance;
    }
    std::vector<std::pair<std::pair<std::string, std::string>, LineSum>> rows(sums.begin(), sums.end());
    std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
    for (std::size_t i = 0; i < rows.size() && i < top; ++i) {
      const auto& [at, sum] = rows[i];
      if (sum.bytes < kShownCopiedBytes) break;
      if (!is_significant(sum.bytes, sum.variance)) continue;
      lines.push_back(fmt::format("  {}{} made at: {}; copied at: {}", size_text(sum.bytes),
                                  error_text(sum.bytes, sum.variance), or_nobody(at.first), or_nobody(at.second)));
    }
  }
  if (shown < processes.size()) {
    std::int64_t copied = 0;
    for (std::size_t i = shown; i < processes.size(); ++i) copied += processes[i]->copied;
    lines.push_back(fmt::format("… and {}: {} copied by themselves",
                                counted(processes.size() - shown, "smaller process"), size_text(copied)));
  }
  if (std::ranges::any_of(processes, [](const ProcessView* process) { return is_likely(*process); }))
    lines.emplace_back(
        "likely: from exclusive bits and page faults, which do not show for certain which process copied");
  return lines;
}

}  // namespace whyrss
