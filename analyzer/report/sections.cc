#include "report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "report/blame.h"
#include "report/blame_sums.h"
#include "report/format.h"
#include "report/limit_effect.h"
#include "report/line_text.h"
#include "report/process_text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kShownBytes = 1024 * 1024;  // smaller table rows are summed
constexpr std::size_t kNameColumns = 44;

using Align = Table::Align;

std::string process_name(const ProcessView& process) {
  return fmt::format("{} {}", process.account->pid, shortened(command_text(process.account->command), kNameColumns));
}

void add_cause_rows(const ProcessView& process, Table& table) {
  if (!process.walked) return table.add({process_name(process), "(never seen by a walk)"});
  std::string name = process_name(process);
  const auto add = [&](const std::string& title, const Figure& rss, std::int64_t at_peak, std::int64_t uss) {
    table.add({name, title, mib(rss.last), mib(rss.growth()), mib(at_peak), mib(uss)});
    name.clear();
  };
  Figure small;
  std::int64_t small_at_peak = 0, small_uss = 0;
  std::size_t small_count = 0;
  for (const CauseView& cause : process.causes) {
    if (std::max({std::abs(cause.rss.growth()), cause.rss.last, cause.at_peak}) >= kShownBytes) {
      add(std::string(info(cause.cause).title), cause.rss, cause.at_peak, cause.uss_growth);
      continue;
    }
    ++small_count;
    small.first += cause.rss.first;
    small.last += cause.rss.last;
    small_at_peak += cause.at_peak;
    small_uss += cause.uss_growth;
  }
  if (small_count > 0) add("smaller causes", small, small_at_peak, small_uss);
  add("= RSS", process.rss, process.rss.peak, process.uss.growth());
}

// Shells and helpers that never had 1 MiB of their own, or were gone before anybody could look: one row
// for all of them, not pages of tables. The main process always has its own rows.
bool is_minor(const View& view, const ProcessView& process) {
  if (&process == &view.processes.front()) return false;
  constexpr double kShortLifeS = 1.0;
  const ProcessAccount& account = *process.account;
  if (!process.walked) return account.ended_s && *account.ended_s - account.born_s < kShortLifeS;
  return process.uss.peak < kShownBytes && process.copied < kShownBytes;
}

struct MinorProcesses {
  std::size_t count = 0;
  Figure rss, uss;
  [[nodiscard]] std::string name() const { return fmt::format("{} smaller process{}", count, count == 1 ? "" : "es"); }
};

MinorProcesses minor_processes(const View& view) {
  MinorProcesses sum;
  for (const ProcessView& process : view.processes) {
    if (!is_minor(view, process)) continue;
    ++sum.count;
    sum.rss.first += process.rss.first;
    sum.rss.last += process.rss.last;
    sum.uss.first += process.uss.first;
    sum.uss.last += process.uss.last;
  }
  return sum;
}

std::string optional_mib(const std::optional<std::int64_t>& bytes) { return bytes ? mib(*bytes) : "-"; }

// A parent outside of the recording (whyrss itself, a shell) is nobody's business here.
std::string born_text(const View& view, const ProcessAccount& process) {
  for (const ProcessView& other : view.processes)
    if (process.parent && other.account->pid == *process.parent)
      return fmt::format("{} of {}", process.born_by_fork ? "fork" : "child", *process.parent);
  return process.born_by_fork ? "fork" : "start";
}

}  // namespace

Table cause_table(const View& view) {
  Table table({{"process"},
               {"cause"},
               {"last", Align::right},
               {"growth", Align::right},
               {"at peak", Align::right},
               {"unshared growth", Align::right}});
  for (const ProcessView& process : view.processes)
    if (!is_minor(view, process)) add_cause_rows(process, table);
  if (const MinorProcesses minor = minor_processes(view); minor.count > 0)
    table.add({minor.name(), "= RSS", mib(minor.rss.last), mib(minor.rss.growth()), "-", mib(minor.uss.growth())});
  return table;
}

namespace {

struct LineRow {
  std::int64_t bytes = 0;
  double variance = 0;
  std::string cause, where, other;
  int pid = 0;
};

// All lines of all causes, largest first. `rows_of(cause, mapping name, sites)` names those of one mapping.
template <typename RowsOf>
std::vector<LineRow> line_rows(const View& view, std::size_t top, RowsOf rows_of) {
  // The same line over several nameless mappings is one row.
  std::map<std::tuple<int, std::string, std::string, std::string>, std::pair<std::int64_t, double>> sums;
  for (const ProcessView& process : view.processes) {
    for (const CauseView& cause : process.causes) {
      if (cause.cause == Cause::fork_shared) continue;  // costs nothing
      for (const MappingGrowth& mapping : growth_by_mapping(cause.sites)) {
        for (const LineRow& row : rows_of(cause.cause, printable(base_name(mapping.mapping)), mapping.sites)) {
          auto& [bytes, variance] =
              sums[{process.account->pid, std::string(info(cause.cause).title), row.where, row.other}];
          bytes += row.bytes;
          variance += row.variance;
        }
      }
    }
  }
  std::vector<LineRow> rows;
  for (const auto& [key, sum] : sums)
    if (is_significant(sum.first, sum.second))
      rows.push_back({sum.first, sum.second, std::get<1>(key), std::get<2>(key), std::get<3>(key), std::get<0>(key)});
  std::stable_sort(rows.begin(), rows.end(), [](const LineRow& a, const LineRow& b) { return a.bytes > b.bytes; });
  if (rows.size() > top) rows.resize(top);
  return rows;
}

bool is_of_file(Cause cause) { return cause == Cause::file_cache || cause == Cause::file_cow; }

}  // namespace

Table line_table(const View& view, std::size_t top) {
  const auto rows_of = [&](Cause cause, const std::string& name, const std::vector<const SiteView*>& sites) {
    std::vector<LineRow> rows;
    for (const LineGrowth& line : growth_by_line(view.recording->stacks, sites)) {
      std::string where = printable(line.line);
      if (where.empty())
        where = name.empty() ? "(nobody was seen)" : name;
      else if (is_of_file(cause))
        where += " (" + name + ")";
      where += printable(touched_where(line, touch_verb(cause)));
      rows.push_back({.bytes = line.bytes, .variance = line.variance, .cause = {}, .where = where, .other = {}});
    }
    return rows;
  };
  Table table({{"growth", Align::right}, {"cause"}, {"line"}, {"pid", Align::right}});
  for (const LineRow& row : line_rows(view, top, rows_of))
    table.add({mib(row.bytes) + error_text(row.bytes, row.variance), row.cause, row.where, std::to_string(row.pid)});
  return table;
}

Table touch_table(const View& view, std::size_t top) {
  const auto rows_of = [&](Cause cause, const std::string& name, const std::vector<const SiteView*>& sites) {
    std::vector<LineRow> rows;
    for (const LineGrowth& line : growth_by_touch(view.recording->stacks, sites)) {
      const std::string where = line.line.empty() ? "(not seen)" : printable(line.line);
      std::string other = printable(line.other_line);
      if (is_of_file(cause) || (other.empty() && !name.empty()))
        other += fmt::format("{}({})", other.empty() ? "" : " ", name);
      rows.push_back({.bytes = line.bytes, .variance = line.variance, .cause = {}, .where = where, .other = other});
    }
    return rows;
  };
  Table table({{"growth", Align::right}, {"cause"}, {"touched at"}, {"mapped or allocated at"}, {"pid", Align::right}});
  for (const LineRow& row : line_rows(view, top, rows_of))
    table.add({mib(row.bytes) + error_text(row.bytes, row.variance), row.cause, row.where,
               row.other.empty() ? "-" : row.other, std::to_string(row.pid)});
  return table;
}

Table process_table(const View& view) {
  Table table({{"pid", Align::right},
               {"born"},
               {"from s", Align::right},
               {"to s", Align::right},
               {"RSS last", Align::right},
               {"at s", Align::right},
               {"peak", Align::right},
               {"at s", Align::right},
               {"high water", Align::right},
               {"PSS last", Align::right},
               {"USS last", Align::right},
               {"COW copied", Align::right},
               {"seen by"},
               {"command"}});
  for (const ProcessView& process : view.processes) {
    if (is_minor(view, process)) continue;
    const ProcessAccount& account = *process.account;
    // A walk and a reading may have come just before and after another process joined or left.
    const std::int64_t uss = std::min(process.uss.last, process.pss.last.value_or(process.uss.last));
    const auto time = [](double time_s) { return fmt::format("{:.1f}", time_s); };
    const auto moment = [&](const std::optional<StateMoment>& of) { return of ? time(of->time_s) : "-"; };
    const auto known = [&](std::int64_t bytes) { return process.walked ? mib(bytes) : std::string("-"); };
    table.add({std::to_string(account.pid), born_text(view, account), time(account.born_s),
               account.ended_s ? time(*account.ended_s) : "-", known(process.rss.last), moment(process.at_last),
               known(process.rss.peak), moment(process.at_peak),
               (account.high_water_at_least ? ">= " : "") + mib(account.high_water_bytes),
               optional_mib(process.pss.last), known(uss), mib(process.copied), account.traced ? "shim" : "kernel",
               shortened(command_text(account.command), kNameColumns)});
  }
  if (const MinorProcesses minor = minor_processes(view); minor.count > 0)
    table.add({"-", "-", "-", "-", mib(minor.rss.last), "-", "-", "-", "-", "-", mib(minor.uss.last), "-", "-",
               minor.name() + ", each under 1 MiB of its own"});
  return table;
}

std::vector<std::string> family_lines(const View& view) {
  const FamilyView& family = view.family;
  std::vector<std::string> lines;
  const bool seen = std::ranges::any_of(view.recording->processes,
                                        [](const ProcessAccount& process) { return !process.accounts.empty(); });
  if (!seen) return {"not read"};
  lines.push_back(
      fmt::format("RSS summed over processes: {} at the end, {} at its peak (shared pages count again "
                  "in each process)",
                  size_text(family.rss_sum.last), size_text(family.rss_sum.peak)));
  if (!family.pss.peak)
    lines.emplace_back("PSS summed: not read");
  else
    lines.push_back(fmt::format("PSS summed: {} at the end, {} at its peak (shared pages count once{})",
                                family.pss.last ? size_text(*family.pss.last) : "not read", size_text(*family.pss.peak),
                                family.pss.estimate ? "; partly not read then, but told from page walks" : ""));
  if (view.recording->processes.size() > 1 && family.accounting.rss_less_shared > 0)
    lines.push_back(fmt::format("RSS less files and shared memory: {} at its peak (what a fork shares counts in each)",
                                size_text(family.accounting.rss_less_shared)));
  for (std::string& line : limit_effect_lines(view.recording->info)) lines.push_back(std::move(line));
  return lines;
}

std::string recording_line(const View& view) {
  const RecordingInfo& recording = view.recording->info;
  std::string line = fmt::format("{}: {}, {} from {}", printable(recording.path), command_text(recording.command),
                                 seconds_text(recording.duration_s), printable(recording.started));
  if (recording.exit_signal) line += fmt::format(", killed by {}", printable(*recording.exit_signal));
  if (recording.exit_code && *recording.exit_code != 0) line += fmt::format(", exit status {}", *recording.exit_code);
  if (recording.oom_killed) line += " (out of memory)";
  return line;
}

}  // namespace whyrss
