#include "report/render/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "report/render/process_text.h"
#include "report/verdicts/unmapped_rule.h"
#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/view/limit_effect.h"
#include "report/view/line_text.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr std::int64_t kShownBytes = 1024 * 1024;  // smaller table rows are summed
constexpr std::size_t kNameColumns = 44;

using Align = Table::Align;

std::string process_name(const ProcessView& process) {
  return fmt::format("{} {}", process.account->pid, shortened(command_text(process.account->command), kNameColumns));
}

bool has_own_row(const CauseView& cause) {
  return std::max({std::abs(cause.rss.growth()), cause.rss.last, cause.at_peak}) >= kShownBytes;
}

void add_cause_rows(const ProcessView& process, Table& table) {
  if (!process.walked) return table.add({process_name(process), "(no snapshot)"});
  std::string name = process_name(process);
  const auto add = [&](const std::string& title, const Figure& rss, std::int64_t at_peak, std::int64_t uss) {
    table.add({name, title, mib(rss.last), mib(rss.growth()), mib(at_peak), mib(uss)});
    name.clear();
  };
  Figure small;
  std::int64_t small_at_peak = 0, small_uss = 0;
  std::size_t small_count = 0;
  for (const CauseView& cause : process.causes) {
    if (has_own_row(cause)) {
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

// Shells and helpers that never had 1 MiB of their own, or were gone before the first walk: one row for all of them,
// not pages of tables. The main process always has its own rows, and so has each that the answer speaks of: that others
// share all of it, as the file that several read, does not make it small.
bool is_minor(const View& view, const std::set<const ProcessView*>& named, const ProcessView& process) {
  if (&process == &view.processes.front() || named.contains(&process)) return false;
  constexpr double kShortLifeS = 1.0;
  constexpr std::int64_t kPolledBytes = 8 * kShownBytes;  // with libraries that others map too
  const ProcessAccount& account = *process.account;
  if (!process.walked)
    return account.ended_s && *account.ended_s - account.born_s < kShortLifeS &&
           std::ranges::all_of(account.polls, [](const RssPoint& poll) { return poll.rss_bytes < kPolledBytes; });
  return process.uss.peak < kShownBytes && process.copied < kShownBytes;
}

// Who has rows of their own in a table, and the sum of the others.
struct ProcessRows {
  std::vector<const ProcessView*> shown;  // in the view's order
  std::size_t left_out = 0;               // of the others
  bool are_small = true;                  // the others: each below 1 MiB of its own
  std::vector<OwnBytes> rss, rss_growth, uss, uss_growth;
  // Whether they were there together: else a sum is of no moment.
  [[nodiscard]] bool have_sum() const { return most_at_a_time(rss) >= sum_of(rss); }
  [[nodiscard]] std::int64_t figure(const std::vector<OwnBytes>& all) const {
    return have_sum() ? sum_of(all) : most_at_a_time(all);
  }
  [[nodiscard]] std::string rest(std::string_view what = "") const {
    const std::string name =
        fmt::format("{} smaller process{}{}", left_out, left_out == 1 ? "" : "es", are_small ? what : "");
    if (!have_sum()) return (are_small ? name : "… and " + name) + ": most at a time";
    return are_small ? name : "… and " + name + ": sum";
  }
};

// Of more than there is room for: whom the answer speaks of, then who had most of its own. `rows_of`: how many rows a
// process takes of the `most`.
template <typename RowsOf>
ProcessRows process_rows(const View& view, const std::vector<ProcessSection>& sections, std::size_t most,
                         RowsOf rows_of) {
  std::set<const ProcessView*> named;
  for (const ProcessSection& section : sections) named.insert(section.process);
  ProcessRows rows;
  std::vector<const ProcessView*> candidates;
  for (const ProcessView& process : view.processes)
    if (!is_minor(view, named, process)) candidates.push_back(&process);
  std::ranges::stable_sort(candidates, std::ranges::greater{}, [&](const ProcessView* process) {
    return std::tuple(process == &view.processes.front(), named.contains(process), process->uss.peak);
  });
  std::set<const ProcessView*> chosen;
  std::size_t used = 0;
  for (const ProcessView* process : candidates) {
    used += rows_of(*process);
    if (used > most && !chosen.empty()) break;
    chosen.insert(process);
  }
  rows.are_small = chosen.size() == candidates.size();
  for (const ProcessView& process : view.processes) {
    if (chosen.contains(&process)) {
      rows.shown.push_back(&process);
      continue;
    }
    if (!was_there(view, process)) continue;
    ++rows.left_out;
    rows.rss.push_back(own_bytes(view, process, process.rss.last));
    rows.rss_growth.push_back(own_bytes(view, process, process.rss.growth()));
    rows.uss.push_back(own_bytes(view, process, process.uss.last));
    rows.uss_growth.push_back(own_bytes(view, process, process.uss.growth()));
  }
  return rows;
}

// With its sum, and one for small causes.
std::size_t cause_row_count(const ProcessView& process) {
  return 2 + static_cast<std::size_t>(std::ranges::count_if(process.causes, has_own_row));
}

// A parent outside of the recording (whyrss itself, a shell) is not named.
std::string born_text(const View& view, const ProcessAccount& process) {
  for (const ProcessView& other : view.processes)
    if (process.parent && other.account->pid == *process.parent)
      return fmt::format("{} of {}", process.born_by_fork ? "fork" : "child", *process.parent);
  return process.born_by_fork ? "fork" : "start";
}

}  // namespace

std::string cause_title(const View& view) {
  std::string title = "Memory by process and cause, MiB";
  const Interval life = whole_life(*view.recording);
  if (view.interval.from_s <= life.from_s && view.interval.to_s >= life.to_s) return title;
  if (is_moment(view.interval)) return fmt::format("{}, at {:.3f} s", title, view.interval.to_s);
  return fmt::format("{}, from {:.3f} s to {:.3f} s", title, view.interval.from_s, view.interval.to_s);
}

Table cause_table(const View& view, const std::vector<ProcessSection>& sections, std::size_t top) {
  constexpr std::size_t kCausesOfOne = 3;
  Table table({{"process"},
               {"cause"},
               {"last", Align::right},
               {"growth", Align::right},
               {"at peak", Align::right},
               {"unshared growth", Align::right}});
  const ProcessRows rows = process_rows(view, sections, kCausesOfOne * top, cause_row_count);
  for (const ProcessView* process : rows.shown) add_cause_rows(*process, table);
  if (rows.left_out > 0)
    table.add({rows.rest(), "= RSS", mib(rows.figure(rows.rss)), mib(rows.figure(rows.rss_growth)), "-",
               mib(rows.figure(rows.uss_growth))});
  return table;
}

namespace {

struct LineRow {
  std::int64_t bytes = 0;
  double variance = 0;
  std::string cause{}, where{}, other{};
  int pid = 0;
  std::size_t more_pids = 0;  // that have less of the same line
  bool is_folded = false;     // into the row of another process
};

// A line that many processes have is one row, of the one that has most of it.
void fold_alike(std::vector<LineRow>& rows) {
  constexpr std::size_t kFolded = 4;
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < rows.size(); ++i) alike[{rows[i].cause, rows[i].where, rows[i].other}].push_back(i);
  for (const auto& [line, numbers] : alike) {
    if (numbers.size() < kFolded) continue;
    rows[numbers.front()].more_pids = numbers.size() - 1;
    for (std::size_t i = 1; i < numbers.size(); ++i) rows[numbers[i]].is_folded = true;
  }
  std::erase_if(rows, [](const LineRow& row) { return row.is_folded; });
}

std::string pids_text(const LineRow& row) {
  return row.more_pids == 0 ? std::to_string(row.pid) : fmt::format("{} and {} more", row.pid, row.more_pids);
}

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
  fold_alike(rows);
  const auto says_something = [](const LineRow& row) { return mib(row.bytes) != "0.0"; };
  if (std::ranges::any_of(rows, says_something)) std::erase_if(rows, std::not_fn(says_something));
  if (rows.size() > top) rows.resize(top);
  return rows;
}

bool is_of_file(Cause cause) { return cause == Cause::file_cache || cause == Cause::file_cow; }

}  // namespace

Table line_table(const View& view, std::size_t top) {
  const auto rows_of = [&](Cause cause, const std::string& name, const std::vector<const SiteView*>& sites) {
    std::vector<LineRow> rows;
    const char* const touched =
        touch_verb(*view.recording, cause, sites.empty() ? std::string() : sites.front()->mapping());
    for (const LineGrowth& line : growth_by_line(view.recording->stacks, sites)) {
      std::string where = line.line.empty() ? "" : printable(line.line) + done_by_text(line);
      if (where.empty())
        where = name.empty() ? "(no call recorded)" : name;
      else if (is_of_file(cause))
        where += " (" + name + ")";
      where += printable(touched_where(line, touched));
      rows.push_back({.bytes = line.bytes, .variance = line.variance, .cause = {}, .where = where, .other = {}});
    }
    return rows;
  };
  Table table({{"growth", Align::right}, {"cause"}, {"line", Align::left, Table::Fit::wrap}, {"pid", Align::right}});
  const std::vector<LineRow> rows = line_rows(view, top, rows_of);
  if (rows.empty()) table.add({"-", "-", "(none grew)", "-"});
  for (const LineRow& row : rows)
    table.add({mib(row.bytes) + error_text(row.bytes, row.variance), row.cause, row.where, pids_text(row)});
  return table;
}

Table touch_table(const View& view, std::size_t top) {
  const auto rows_of = [&](Cause cause, const std::string& name, const std::vector<const SiteView*>& sites) {
    std::vector<LineRow> rows;
    for (const LineGrowth& line : growth_by_touch(view.recording->stacks, sites)) {
      const std::string where = line.line.empty() ? "(not recorded)" : printable(line.line) + done_by_text(line);
      std::string other = printable(line.other_line) + (line.other_meanwhile ? kDoneMeanwhile : "");
      if (is_of_file(cause) || (other.empty() && !name.empty()))
        other += fmt::format("{}({})", other.empty() ? "" : " ", name);
      rows.push_back({.bytes = line.bytes, .variance = line.variance, .cause = {}, .where = where, .other = other});
    }
    return rows;
  };
  Table table({{"growth", Align::right},
               {"cause"},
               {"touched at", Align::left, Table::Fit::wrap},
               {"mapped or allocated at", Align::left, Table::Fit::wrap},
               {"pid", Align::right}});
  for (const LineRow& row : line_rows(view, top, rows_of))
    table.add({mib(row.bytes) + error_text(row.bytes, row.variance), row.cause, row.where,
               row.other.empty() ? "-" : row.other, pids_text(row)});
  return table;
}

Table process_table(const View& view, const std::vector<ProcessSection>& sections, std::size_t top) {
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
               {"source"},
               {"command"}});
  const ProcessRows rows = process_rows(view, sections, top, [](const ProcessView&) { return std::size_t{1}; });
  for (const ProcessView* shown : rows.shown) {
    const ProcessView& process = *shown;
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
               mib_or_dash(process.pss.last), known(uss), mib(process.copied), account.traced ? "shim" : "kernel",
               shortened(command_text(account.command), kNameColumns)});
  }
  if (rows.left_out > 0) {
    const std::string small = rows.left_out == 1 ? ", under 1 MiB of its own" : ", each under 1 MiB of its own";
    table.add({"-", "-", "-", "-", mib(rows.figure(rows.rss)), "-", "-", "-", "-", "-", mib(rows.figure(rows.uss)), "-",
               "-", rows.rest(small)});
  }
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
                                family.pss.estimate() ? "; partly estimated from page walks" : ""));
  if (family.unmapped.peak.value_or(0) >= kNamedUnmappedBytes)
    lines.push_back(fmt::format("shared memory that no process maps: {} at the end, {} at its peak (in no RSS or PSS)",
                                size_text(family.unmapped.last.value_or(0)), size_text(*family.unmapped.peak)));
  if (view.recording->processes.size() > 1 && family.accounting.rss_less_shared > 0)
    lines.push_back(fmt::format("RSS less files and shared memory: {} at its peak (what a fork shares counts in each)",
                                size_text(family.accounting.rss_less_shared)));
  for (std::string& line : limit_effect_lines(view.recording->info)) lines.push_back(std::move(line));
  return lines;
}

void keep_first(std::vector<std::string>& lines, std::size_t most) {
  if (lines.size() <= most) return;
  const std::size_t left_out = lines.size() - most;
  lines.resize(most);
  lines.push_back(fmt::format("… and {} more", left_out));
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
