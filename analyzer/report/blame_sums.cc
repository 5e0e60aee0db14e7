#include "report/blame_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "report/blame.h"

namespace whyrss {
namespace {

template <typename T>
void largest_first(std::vector<T>& entries) {
  std::erase_if(entries, [](const T& entry) { return entry.bytes <= 0; });
  std::stable_sort(entries.begin(), entries.end(), [](const T& a, const T& b) { return a.bytes > b.bytes; });
}

}  // namespace

std::vector<LineGrowth> growth_by_line(const StackTable& stacks, const std::vector<const SiteView*>& sites) {
  std::map<std::pair<std::string, std::string>, LineGrowth> by_line;  // two files may share a base name
  for (const SiteView* site : sites) {
    const Frame* frame = blamed_frame(stacks, site->stack);
    const std::string file = frame == nullptr ? "" : frame->file;
    LineGrowth& entry = by_line[{code_line(stacks, frame), file}];
    entry.line = code_line(stacks, frame);
    entry.file = file;
    entry.number = frame == nullptr ? 0 : frame->line;
    entry.bytes += site->growth;
    entry.variance += site->variance;
  }
  std::vector<LineGrowth> lines;
  for (auto& [key, entry] : by_line) lines.push_back(std::move(entry));
  largest_first(lines);
  return lines;
}

std::vector<MappingGrowth> growth_by_mapping(const std::vector<SiteView>& sites) {
  std::map<std::string, MappingGrowth> by_mapping;
  for (const SiteView& site : sites) {
    MappingGrowth& entry = by_mapping[site.mapping];
    entry.mapping = site.mapping;
    entry.bytes += site.growth;
    entry.sites.push_back(&site);
  }
  std::vector<MappingGrowth> mappings;
  for (auto& [key, entry] : by_mapping) mappings.push_back(std::move(entry));
  largest_first(mappings);
  return mappings;
}

double error_percent(std::int64_t bytes, double variance) {
  return bytes == 0 || variance <= 0 ? 0 : 100 * std::sqrt(variance) / std::abs(static_cast<double>(bytes));
}

std::string error_text(std::int64_t bytes, double variance) {
  constexpr double kShownPercent = 1;  // figures have three digits
  const double percent = error_percent(bytes, variance);
  return percent > kShownPercent ? fmt::format(" ± {:.0f} %", percent) : "";
}

bool is_significant(std::int64_t bytes, double variance) {
  const auto magnitude = static_cast<double>(bytes);
  return magnitude * magnitude > 4 * variance;
}

std::int64_t sum_growth(const std::vector<const SiteView*>& sites) {
  std::int64_t sum = 0;
  for (const SiteView* site : sites) sum += site->growth;
  return sum;
}

}  // namespace whyrss
