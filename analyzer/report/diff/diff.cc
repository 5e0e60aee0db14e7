#include "report/diff/diff.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "report/diff/diff_lines.h"
#include "report/view/blame_sums.h"

namespace whyrss {
namespace {

struct Totals {
  std::array<std::int64_t, kCauseCount> bytes{};
  std::array<double, kCauseCount> variance{};  // of causes of which an end is an estimate
  std::int64_t rss = 0;
};

// Of all processes together where all are compared, else of those that are.
std::int64_t peak_rss_of(const View& view) {
  if (view.processes.size() == view.recording->processes.size()) return view.family.rss_sum.peak;
  std::int64_t sum = 0;
  for (const ProcessView& process : view.processes) sum += process.rss.peak;
  return sum;
}

std::optional<std::int64_t> peak_pss_of(const View& view) {
  if (view.processes.size() == view.recording->processes.size()) return view.family.pss.peak;
  std::int64_t sum = 0;
  for (const ProcessView& process : view.processes) {
    if (!process.pss.peak) return std::nullopt;
    sum += *process.pss.peak;
  }
  return sum;
}

Totals totals_of(const View& view, SiteFigure which) {
  Totals totals;
  for (const ProcessView& process : view.processes) {
    totals.rss += figure_of(process.rss, which);
    for (const CauseView& cause : process.causes) {
      totals.bytes.at(static_cast<std::size_t>(cause.cause)) += figure_of(cause, which);
      totals.variance.at(static_cast<std::size_t>(cause.cause)) += cause.variance;
    }
  }
  return totals;
}

template <typename T>
void largest_change_first(std::vector<T>& entries) {
  std::ranges::stable_sort(entries, std::ranges::greater{},
                           [](const T& entry) { return std::abs(entry.figure.change()); });
}

}  // namespace

std::string slug_of(DiffState state) {
  switch (state) {
    case DiffState::same:
      return "same";
    case DiffState::added:
      return "new";
    case DiffState::gone:
      return "gone";
    case DiffState::grown:
      return "grown";
    case DiffState::shrunk:
      return "shrunk";
  }
  return "";
}

namespace {

// `part` is less than chance, and less than a hundredth of `other`.
bool is_next_to_none(std::int64_t part, std::int64_t other) {
  return other > 0 && std::abs(part) < kChanceBytes && std::abs(part) * 100 < other;
}

}  // namespace

DiffState DiffFigure::state() const {
  const std::int64_t sure = change() > 0 ? least_change() : most_change();
  const bool is_sure = change() > 0 ? sure > 0 : sure < 0;
  if (!is_sure || !is_significant(sure, variance)) return DiffState::same;
  if (is_next_to_none(a, b)) return DiffState::added;
  if (is_next_to_none(b, a)) return DiffState::gone;
  return change() > 0 ? DiffState::grown : DiffState::shrunk;
}

std::optional<double> DiffFigure::percent() const {
  if (a <= 0) return std::nullopt;
  return 100 * static_cast<double>(change()) / static_cast<double>(a);
}

std::int64_t count_there(const View& view) {
  return std::ranges::count_if(view.processes, [&](const ProcessView& process) { return was_there(view, process); });
}

bool is_read(const View& view) {
  return std::ranges::any_of(view.processes, [](const ProcessView& process) { return process.walked; });
}

Diff build_diff(const View& a, const View& b, SiteFigure which) {
  Diff diff{.a = &a, .b = &b, .which = which, .lines = diff_lines(a, b, which)};
  const Totals of_a = totals_of(a, which), of_b = totals_of(b, which);
  diff.rss = {.a = of_a.rss, .b = of_b.rss};
  diff.peak_rss = {.a = peak_rss_of(a), .b = peak_rss_of(b)};
  const auto pss_a = peak_pss_of(a), pss_b = peak_pss_of(b);
  if (pss_a && pss_b) diff.peak_pss = DiffFigure{.a = *pss_a, .b = *pss_b};
  for (const CauseInfo& known : kCauses) {
    const auto index = static_cast<std::size_t>(known.cause);
    const DiffFigure figure{.a = of_a.bytes.at(index),
                            .b = of_b.bytes.at(index),
                            .variance = of_a.variance.at(index) + of_b.variance.at(index)};
    if (figure.a != 0 || figure.b != 0) diff.causes.push_back({known.cause, figure});
  }
  std::erase_if(diff.lines, [](const DiffLine& line) { return line.figure.a == 0 && line.figure.b == 0; });
  largest_change_first(diff.causes);
  largest_change_first(diff.lines);
  return diff;
}

}  // namespace whyrss
