#include "report/compare/compare.h"

#include <algorithm>

namespace whyrss {
namespace {

template <typename Run, typename Figure>
Spread spread_over(const std::vector<Run>& runs, Figure figure) {
  std::vector<double> values;
  for (const Run& run : runs) values.push_back(static_cast<double>(figure(run)));
  return spread_of(std::move(values));
}

template <typename Run>
void add_ends(const std::vector<Run>& runs, std::vector<RunEnd>& ends) {
  for (const Run& run : runs)
    if (!run.end.empty() && std::find(ends.begin(), ends.end(), run.end) == ends.end()) ends.push_back(run.end);
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  Spread spread;
  if (values.empty()) return spread;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  spread.median = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  spread.least = sorted.front();
  spread.most = sorted.back();
  spread.values = std::move(values);
  return spread;
}

bool is_distinct(const Spread& a, const Spread& b) {
  if (a.values.size() < 2 || b.values.size() < 2) return false;
  return a.most < b.least || b.most < a.least;
}

ContestantFigures figures_of(const Contestant& contestant) {
  const auto bare = [&](auto figure) { return spread_over(contestant.bare, figure); };
  const auto recorded = [&](auto figure) { return spread_over(contestant.recorded, figure); };
  ContestantFigures figures;
  figures.peak_rss = bare([](const BareRun& run) { return run.peak_rss_bytes; });
  figures.page_faults = bare([](const BareRun& run) { return run.page_faults; });
  figures.cpu_s = bare([](const BareRun& run) { return run.cpu_s; });
  figures.wall_s = bare([](const BareRun& run) { return run.wall_s; });
  figures.final_rss = recorded([](const RecordedRun& run) { return run.final_rss_bytes; });
  figures.rss_byte_seconds = recorded([](const RecordedRun& run) { return run.rss_byte_seconds; });
  figures.recorded_peak_rss = recorded([](const RecordedRun& run) { return run.peak_rss_bytes; });
  figures.live_at_peak = recorded([](const RecordedRun& run) { return run.at_peak.live; });
  figures.slack_at_peak = recorded([](const RecordedRun& run) { return run.at_peak.slack; });
  figures.retained_at_peak = recorded([](const RecordedRun& run) { return run.at_peak.retained; });
  figures.live_at_end = recorded([](const RecordedRun& run) { return run.at_end.live; });
  figures.slack_at_end = recorded([](const RecordedRun& run) { return run.at_end.slack; });
  figures.retained_at_end = recorded([](const RecordedRun& run) { return run.at_end.retained; });
  figures.unsplit_at_peak = recorded([](const RecordedRun& run) { return run.at_peak.unsplit; });
  figures.unsplit_at_end = recorded([](const RecordedRun& run) { return run.at_end.unsplit; });
  for (const RecordedRun& run : contestant.recorded) figures.has_parts = figures.has_parts || run.has_parts;
  add_ends(contestant.bare, figures.ends);
  add_ends(contestant.recorded, figures.ends);
  return figures;
}

}  // namespace whyrss
