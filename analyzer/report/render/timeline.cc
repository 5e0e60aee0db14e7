#include "report/render/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "report/view/build_view.h"
#include "report/view/memory_figures.h"
#include "report/view/series.h"
#include "report/wording/format.h"
#include "report/wording/times.h"

namespace whyrss {
namespace {

using Values = std::vector<std::optional<std::int64_t>>;

constexpr std::size_t kColumns = 48;
constexpr std::size_t kMostProcesses = 3;
constexpr std::size_t kMostCauses = 5;
// A cause with less at its peak does not move RSS visibly.
constexpr std::int64_t kNamedBytes = 1024 * 1024;
constexpr double kNamedShare = 0.02;
constexpr std::size_t kMostPhaseCauses = 4;

double column_s(Interval interval) { return (interval.to_s - interval.from_s) / static_cast<double>(kColumns); }

// The largest value of each column's time: `bytes_of` the entries within it, and of the one in force when it begins.
template <typename Entry, typename BytesOf>
Values largest_by_column(const std::vector<Entry>& series, const ProcessAccount& process, const View& view,
                         BytesOf bytes_of) {
  Values values(kColumns);
  const Interval interval = view.interval;
  const double end_s = process.ended_s.value_or(broken_off_s(*view.recording, process).value_or(interval.to_s));
  auto next = std::ranges::upper_bound(series, interval.from_s, {}, &Entry::time_s);
  for (std::size_t i = 0; i < kColumns; ++i) {
    const double begin_s = interval.from_s + static_cast<double>(i) * column_s(interval);
    const double until_s = i + 1 == kColumns ? interval.to_s : begin_s + column_s(interval);
    if (until_s < process.born_s || begin_s > end_s) continue;
    if (next != series.begin()) values[i] = bytes_of(*std::prev(next));
    for (; next != series.end() && next->time_s <= until_s; ++next)
      values[i] = std::max(values[i].value_or(0), bytes_of(*next));
  }
  return values;
}

// Those that made up most of it at some time.
std::vector<const CauseView*> main_causes(const ProcessView& process) {
  std::vector<const CauseView*> causes;
  const auto least =
      std::max<std::int64_t>(kNamedBytes, std::llround(kNamedShare * static_cast<double>(process.rss.peak)));
  for (const CauseView& cause : process.causes)
    if (cause.rss.peak >= least) causes.push_back(&cause);
  std::ranges::stable_sort(causes, std::greater(), [](const CauseView* cause) { return cause->rss.peak; });
  causes.resize(std::min(causes.size(), kMostCauses));
  return causes;
}

void add_row(const std::string& what, const Figure& figure, const Values& values, Table& table) {
  table.add({what, mib(figure.first), mib(figure.peak), mib(figure.last), sparkline(values)});
}

// Of all processes that are there, at the end of each column's time; nothing where one of them is not known any more.
Values rss_sums(const View& view) {
  Values sums(kColumns, 0);
  for (const ProcessAccount& process : view.recording->processes) {
    const auto broken_s = broken_off_s(*view.recording, process);
    for (std::size_t i = 0; i < kColumns; ++i) {
      const double begin_s = view.interval.from_s + static_cast<double>(i) * column_s(view.interval);
      const double time_s = begin_s + column_s(view.interval);
      if (!sums[i] || process.born_s > time_s || process.ended_s.value_or(time_s) < time_s) continue;
      sums[i] = broken_s && *broken_s < begin_s ? std::nullopt
                                                : std::optional(*sums[i] + rss_at(process, time_s).value_or(0));
    }
  }
  return sums;
}

using Growth = std::map<Cause, std::int64_t>;

struct PhaseGrowth {
  const Phase* phase = nullptr;
  std::int64_t rss = 0, peak = 0;  // of RSS summed
  bool known = false;
  Growth causes;
};

PhaseGrowth growth_in(const ProcessTimes& times, const Phase& phase) {
  const Interval interval{.from_s = phase.from_s,
                          .to_s = phase.to_s,
                          .from_phase = true,
                          .to_phase = true,
                          .from_pid = phase.pid,
                          .to_pid = phase.pid,
                          .to_teardown = true};
  const Interval of_all = interval_of_all(times.recording(), interval);
  PhaseGrowth growth{.phase = &phase, .peak = peak_rss_sum(times, of_all.from_s, of_all.to_s), .causes = {}};
  for (const ProcessView& process : build_processes(times, interval).processes) {
    growth.rss += process.rss.growth();
    growth.known |= process.walked;
    for (const CauseView& cause : process.causes) growth.causes[cause.cause] += cause.rss.growth();
  }
  return growth;
}

// By polls, of all processes: cheap enough for each of thousands of phases.
std::int64_t moved_in(const RecordingAccount& recording, const Phase& phase) {
  std::int64_t moved = 0;
  for (const ProcessAccount& process : recording.processes)
    moved += std::abs(rss_at(process, phase.to_s).value_or(0) - rss_at(process, phase.from_s).value_or(0));
  return moved;
}

std::vector<const Phase*> phases_in(const View& view) {
  std::vector<const Phase*> phases;
  for (const Phase& phase : view.recording->phases)
    if (phase.from_s < view.interval.to_s && phase.to_s > view.interval.from_s) phases.push_back(&phase);
  return phases;
}

std::vector<const Phase*> most_moved(const View& view, std::size_t top) {
  std::vector<const Phase*> phases = phases_in(view);
  if (phases.size() > top) {
    std::vector<std::pair<std::int64_t, const Phase*>> by_move;
    for (const Phase* phase : phases) by_move.emplace_back(moved_in(*view.recording, *phase), phase);
    std::ranges::stable_sort(by_move, std::greater(), [](const auto& moved) { return moved.first; });
    phases.clear();
    for (std::size_t i = 0; i < top; ++i) phases.push_back(by_move[i].second);
  }
  std::ranges::stable_sort(phases, {}, [](const Phase* phase) { return phase->from_s; });
  return phases;
}

// Those that moved most over all phases.
std::vector<Cause> moving_causes(const std::vector<PhaseGrowth>& phases) {
  Growth moves;
  for (const PhaseGrowth& phase : phases)
    for (const auto& [cause, growth] : phase.causes) moves[cause] += std::abs(growth);
  std::vector<Cause> causes;
  for (const auto& [cause, moved] : moves)
    if (moved >= kNamedBytes) causes.push_back(cause);
  std::ranges::stable_sort(causes, std::greater(), [&](Cause cause) { return moves.at(cause); });
  causes.resize(std::min(causes.size(), kMostPhaseCauses));
  return causes;
}

}  // namespace

std::string sparkline(const Values& values) {
  static constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::int64_t most = 0;
  for (const auto& value : values) most = std::max(most, value.value_or(0));
  std::string text;
  for (const auto& value : values) {
    if (!value) {
      text += "·";
      continue;
    }
    const double part =
        most == 0 ? 0 : static_cast<double>(std::max<std::int64_t>(*value, 0)) / static_cast<double>(most);
    text += kBlocks.at(static_cast<std::size_t>(std::lround(part * static_cast<double>(kBlocks.size() - 1))));
  }
  return text;
}

std::optional<Table> timeline_table(const View& view, const std::vector<ProcessSection>& sections) {
  if (is_moment(view.interval)) return std::nullopt;
  Table table(
      {{"process, cause"},
       {"first", Table::Align::right},
       {"peak", Table::Align::right},
       {"last", Table::Align::right},
       {two_times("from", view.interval.from_s, "to", view.interval.to_s), Table::Align::left, Table::Fit::keep}});
  std::size_t shown = 0;
  for (const ProcessSection& section : sections) {
    const ProcessView& process = *section.process;
    if (!process.walked || shown++ == kMostProcesses) continue;
    const ProcessAccount& account = *process.account;
    add_row(fmt::format("{} RSS", account.pid), process.rss,
            largest_by_column(account.polls, account, view, [](const RssPoint& point) { return point.rss_bytes; }),
            table);
    for (const CauseView* cause : main_causes(process))
      add_row("  " + std::string(info(cause->cause).title), cause->rss,
              largest_by_column(account.accounts, account, view,
                                [&](const Account& at) { return bytes_of(at, cause->cause); }),
              table);
  }
  if (shown == 0) return std::nullopt;
  if (view.recording->processes.size() > 1)
    add_row("all processes, RSS summed", view.family.rss_sum, rss_sums(view), table);
  return table;
}

std::string timeline_title(const View& view) {
  return fmt::format(
      "Over time, MiB; a column of a chart is {:.2g} s wide, and as high as its part of the row's largest (·: not "
      "there, or "
      "not known)",
      column_s(view.interval));
}

std::optional<Table> phase_table(const View& view, std::size_t top) {
  std::vector<PhaseGrowth> phases;
  const ProcessTimes times(*view.recording);
  for (const Phase* phase : most_moved(view, top)) phases.push_back(growth_in(times, *phase));
  if (phases.empty()) return std::nullopt;
  const std::vector<Cause> causes = moving_causes(phases);
  std::vector<Table::Column> columns{{"phase"}, {"from s", Table::Align::right}, {"lasts s", Table::Align::right}};
  columns.push_back({"RSS", Table::Align::right});
  for (const Cause cause : causes) columns.push_back({std::string(info(cause).title), Table::Align::right});
  columns.push_back({"other causes", Table::Align::right});
  columns.push_back({"RSS at its peak", Table::Align::right});
  Table table(std::move(columns));
  for (const PhaseGrowth& growth : phases) {
    const Phase& phase = *growth.phase;
    std::vector<std::string> cells{shortened(printable(numbered_name(*view.recording, phase)), kColumns),
                                   fmt::format("{:.1f}", phase.from_s),
                                   fmt::format("{:.1f}", phase.to_s - phase.from_s)};
    const auto add = [&](std::int64_t bytes) { cells.push_back(growth.known ? mib(bytes) : "not known"); };
    add(growth.rss);
    std::int64_t rest = growth.rss;
    for (const Cause cause : causes) {
      const auto found = growth.causes.find(cause);
      const std::int64_t bytes = found == growth.causes.end() ? 0 : found->second;
      add(bytes);
      rest -= bytes;
    }
    add(rest);
    add(growth.peak);
    table.add(std::move(cells));
  }
  return table;
}

std::string phase_title(const View& view, std::size_t top) {
  const std::size_t count = phases_in(view).size();
  return "Phases: growth of all processes, MiB" +
         (count > top ? fmt::format(" (the {} of {} that moved most)", top, count) : "");
}

std::vector<std::string> mark_lines(const View& view, std::size_t top) {
  std::vector<std::string> lines;
  std::size_t left_out = 0;
  for (const Mark& mark : view.recording->marks) {
    if (mark.at_s < view.interval.from_s || mark.at_s > view.interval.to_s) continue;
    if (lines.size() < top)
      lines.push_back(fmt::format("{:.3f} s  {}", mark.at_s, shortened(printable(mark.name), kColumns)));
    else
      ++left_out;
  }
  if (left_out > 0) lines.push_back(fmt::format("and {} more", left_out));
  return lines;
}

}  // namespace whyrss
