#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/compare/compare_formats.h"
#include "report/render/process_text.h"
#include "report/view/blame.h"
#include "report/wording/format.h"
#include "report/wording/table.h"
#include "report/wording/wrap.h"

namespace whyrss {
namespace {

using Align = Table::Align;

constexpr std::int64_t kShownLineBytes = 64 * 1024;  // less pins nothing worth a row
constexpr std::int64_t kShownUnsplitBytes = 1L << 20;

// " ±3%": how far the runs lie from their median at most; "" below half a percent.
std::string around(const Spread& spread) {
  if (spread.values.size() < 2 || spread.median <= 0) return "";
  const double away = std::max(spread.most - spread.median, spread.median - spread.least) / spread.median;
  return away < 0.005 ? "" : fmt::format(" ±{:.0f}%", 100 * away);
}

std::string mib_cell(const Spread& spread) {
  return spread.values.empty() ? "-" : mib(std::llround(spread.median)) + around(spread);
}

std::string seconds_cell(const Spread& spread) {
  return spread.values.empty() ? "-" : fmt::format("{:.2f}", spread.median) + around(spread);
}

std::string count_cell(const Spread& spread) {
  return spread.values.empty() ? "-" : fmt::format("{:.0f}", spread.median) + around(spread);
}

Table run_table(const Comparison& comparison) {
  Table table({{"allocator"},
               {"peak RSS", Align::right},
               {"final RSS", Align::right},
               {"RSS·time, MiB s", Align::right},
               {"page faults", Align::right},
               {"CPU s", Align::right},
               {"wall s", Align::right}});
  for (const Contestant& who : comparison.contestants) {
    const ContestantFigures figures = figures_of(who);
    table.add({who.label, mib_cell(figures.peak_rss), mib_cell(figures.final_rss), mib_cell(figures.rss_byte_seconds),
               count_cell(figures.page_faults), seconds_cell(figures.cpu_s), seconds_cell(figures.wall_s)});
  }
  return table;
}

bool has_unsplit(const Comparison& comparison) {
  return std::any_of(comparison.contestants.begin(), comparison.contestants.end(), [](const Contestant& who) {
    const ContestantFigures figures = figures_of(who);
    return std::max(figures.unsplit_at_peak.most, figures.unsplit_at_end.most) >= double{kShownUnsplitBytes};
  });
}

Table heap_table(const Comparison& comparison) {
  const bool with_unsplit = has_unsplit(comparison);
  std::vector<Table::Column> columns{{"allocator"}};
  for (const char* live : {"peak: live", "end: live"}) {
    for (const char* name : {live, "slack", "retained"}) columns.push_back({name, Align::right});
    if (with_unsplit) columns.push_back({"unsplit", Align::right});
  }
  Table table(std::move(columns));
  for (const Contestant& who : comparison.contestants) {
    const ContestantFigures figures = figures_of(who);
    // Without live bytes per page the whole heap counts as live, and nothing is known of the rest.
    const auto rest = [&](const Spread& spread) { return figures.has_parts ? mib_cell(spread) : std::string("-"); };
    std::vector<std::string> cells{who.label, mib_cell(figures.live_at_peak), rest(figures.slack_at_peak),
                                   rest(figures.retained_at_peak)};
    if (with_unsplit) cells.push_back(mib_cell(figures.unsplit_at_peak));
    for (std::string cell : {mib_cell(figures.live_at_end), rest(figures.slack_at_end), rest(figures.retained_at_end)})
      cells.push_back(std::move(cell));
    if (with_unsplit) cells.push_back(mib_cell(figures.unsplit_at_end));
    table.add(std::move(cells));
  }
  return table;
}

std::string part_name(Cause cause) { return cause == Cause::heap_slack ? "slack" : "retained"; }

Table line_table(const Comparison& comparison) {
  Table table({{"allocator"}, {"MiB", Align::right}, {"part"}, {"at the"}, {"line", Align::left, Table::Fit::wrap}});
  for (const Contestant& who : comparison.contestants) {
    std::string name = who.label;
    for (const PinningLine& line : who.pinning_lines) {
      if (line.bytes < kShownLineBytes) continue;
      table.add({name, mib(line.bytes), part_name(line.cause), who.pins_at_end ? "end" : "peak",
                 line.line.empty() ? "(no call recorded)" : printable(line.line)});
      name.clear();
    }
  }
  return table;
}

bool has_lines(const Comparison& comparison) {
  return std::any_of(comparison.contestants.begin(), comparison.contestants.end(), [](const Contestant& who) {
    return !who.pinning_lines.empty() && who.pinning_lines.front().bytes >= kShownLineBytes;
  });
}

Table contestant_table(const Comparison& comparison) {
  Table table({{"allocator"}, {"is"}, {"runs", Align::right}, {"ended", Align::left, Table::Fit::wrap}});
  for (const Contestant& who : comparison.contestants) {
    const std::vector<RunEnd> ends = figures_of(who).ends;
    table.add({who.label,
               fmt::format("{}{}{}", who.family, who.version.empty() ? "" : " " + who.version,
                           who.library.empty() ? "" : " (" + base_name(who.library) + ")"),
               fmt::format("{} + {}", who.bare.size(), who.recorded.size()),
               ends.empty() ? "well" : printable(fmt::format("{}", fmt::join(ends, "; ")))});
  }
  return table;
}

std::vector<std::string> explanations(const Comparison& comparison) {
  std::vector<std::string> lines{
      "Memory in MiB. Medians of the runs; ± is how far single runs lie from them at most.",
      "From bare runs: peak RSS (of the largest process, as the kernel counted it), page faults, CPU, wall.",
      "From recorded runs: final RSS, RSS·time, the heap and its lines; of all processes together, whyrss left out."};
  if (has_unsplit(comparison))
    lines.emplace_back("unsplit: of allocators inside libraries, of which live or free is not known.");
  for (const Contestant& who : comparison.contestants)
    if (!who.settings.empty())
      lines.push_back(fmt::format("{}: {}", who.label, printable(fmt::format("{}", fmt::join(who.settings, " ")))));
  for (const Contestant& who : comparison.contestants)
    if (who.trim)
      lines.push_back(
          fmt::format("malloc_trim(0) at the end, in one more recorded run of {}: RSS from {} to {}, "
                      "retained from {} to {}.",
                      who.label, size_text(who.trim->rss_before), size_text(who.trim->rss_after),
                      size_text(who.trim->retained_before), size_text(who.trim->retained_after)));
  for (const std::string& note : comparison.notes) lines.push_back(printable(note));
  return lines;
}

}  // namespace

std::string render_compare_text(const Comparison& comparison, std::size_t columns) {
  std::string out = wrapped(command_text(comparison.command) + " under each allocator", "", "  ", columns) + "\n";
  out += wrapped(printable(conclusion(comparison)), "", "", columns);
  out += fmt::format("\n{}\n{}", run_table(comparison).text(columns), heap_table(comparison).text(columns));
  if (has_lines(comparison))
    out += fmt::format(
        "\n{}{}", wrapped("Whose live blocks pin the slack, and who used the retained pages last", "", "", columns),
        line_table(comparison).text(columns));
  out += fmt::format("\n{}\n", contestant_table(comparison).text(columns));
  for (const std::string& line : explanations(comparison)) out += wrapped(line, "  ", "    ", columns);
  return out;
}

std::string render_compare_markdown(const Comparison& comparison) {
  std::string out = "# Allocators compared: " + markdown_escaped(command_text(comparison.command)) + "\n\n";
  out += markdown_escaped(printable(conclusion(comparison))) + "\n";
  out += "\n## Runs, memory in MiB\n\n" + run_table(comparison).markdown();
  out += "\n## The heap, MiB\n\n" + heap_table(comparison).markdown();
  if (has_lines(comparison))
    out += "\n## Lines behind slack and retained memory\n\n" + line_table(comparison).markdown();
  out += "\n## Allocators\n\n" + contestant_table(comparison).markdown() + "\n";
  for (const std::string& line : explanations(comparison)) out += "- " + markdown_escaped(line) + "\n";
  return out;
}

}  // namespace whyrss
