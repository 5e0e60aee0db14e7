#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "report/diff/diff_formats.h"
#include "report/diff/diff_words.h"
#include "report/view/blame_sums.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"
#include "report/wording/table.h"

namespace whyrss {
namespace {

using Align = Table::Align;

std::string figure_name(SiteFigure which) {
  if (which == SiteFigure::growth) return "growth";
  return which == SiteFigure::at_peak ? "at the peak of each process" : "at the end";
}

// Of the one that was not read nothing is known, and nothing can be compared.
std::string unread_name(const Diff& diff) {
  if (!is_read(*diff.a)) return is_read(*diff.b) ? "A" : "A and B";
  return is_read(*diff.b) ? "" : "B";
}

std::vector<std::string> headlines(const Diff& diff) {
  if (const std::string unread = unread_name(diff); !unread.empty()) {
    const auto figure = [](const View& view, std::int64_t bytes) {
      return is_read(view) ? size_text(bytes) : "not known";
    };
    return {fmt::format("RSS, {}: {} in A, {} in B", figure_name(diff.which), figure(*diff.a, diff.rss.a),
                        figure(*diff.b, diff.rss.b)),
            fmt::format("No memory of {} was read: there is nothing to compare", unread)};
  }
  const std::size_t most = std::max(diff.a->processes.size(), diff.b->processes.size());
  const std::string summed =
      most > 1 ? fmt::format(", summed over {} and {} processes", count_there(*diff.a), count_there(*diff.b)) : "";
  std::vector<std::string> lines{change_line("RSS, " + figure_name(diff.which) + summed, diff.rss),
                                 change_line(most > 1 ? "Peak RSS of all together" : "Peak RSS", diff.peak_rss)};
  // Each page once; of one process alone it says little.
  const bool is_estimate = diff.a->family.pss.estimate() || diff.b->family.pss.estimate();
  if (diff.peak_pss && most > 1)
    lines.push_back(
        change_line(fmt::format("Peak PSS of all together{}", is_estimate ? " (estimated)" : ""), *diff.peak_pss));
  return lines;
}

struct ShownLines {
  Table table;
  std::size_t rows = 0, more = 0;
  std::int64_t more_change = 0;
};

ShownLines line_table(const Diff& diff, std::size_t top) {
  ShownLines shown{Table({{"change", Align::right},
                          {"A", Align::right},
                          {"B", Align::right},
                          {""},
                          {"cause"},
                          {"line", Align::left, Table::Fit::wrap}})};
  for (const DiffLine& line : diff.lines) {
    const DiffFigure& figure = line.figure;
    // What is shared since fork costs nothing.
    if (line.cause == Cause::fork_shared || figure.state() == DiffState::same ||
        std::abs(figure.change()) < kChanceBytes)
      continue;
    if (shown.rows >= top) {
      ++shown.more;
      shown.more_change += figure.change();
      continue;
    }
    ++shown.rows;
    const std::string name = line.line.empty() ? "(no call recorded)" : printable(line.line);
    shown.table.add({change_text(figure), mib(figure.a), mib(figure.b), slug_of(figure.state()),
                     std::string(info(line.cause).title), name + moved_text(line)});
  }
  return shown;
}

std::string more_text(const ShownLines& shown) {
  if (shown.more == 0) return "";
  return fmt::format("{} changed by {} together (--top)", counted(shown.more, "more line"),
                     growth_text(shown.more_change));
}

}  // namespace

std::vector<std::string> diff_doubts(const Diff& diff) {
  std::vector<std::string> lines;
  for (const auto& [name, view] : {std::pair("A", diff.a), std::pair("B", diff.b)}) {
    const RecordingInfo& info = view->recording->info;
    if (!info.complete) lines.push_back(fmt::format("{} is incomplete: {}", name, printable(info.incomplete_why)));
    if (info.lost_events > 0) lines.push_back(fmt::format("{} lost {}", name, counted(info.lost_events, "event")));
    const auto unseen = std::ranges::count_if(view->processes, [](const ProcessView& one) { return !one.walked; });
    if (unseen > 0)
      lines.push_back(fmt::format("{} of {} of {} {} in no snapshot", unseen,
                                  counted(view->processes.size(), "process"), name, unseen == 1 ? "was" : "were"));
  }
  if (diff.a->recording->info.mode != diff.b->recording->info.mode)
    lines.push_back(fmt::format("A was recorded in {} mode, B in {}", printable(diff.a->recording->info.mode),
                                printable(diff.b->recording->info.mode)));
  return lines;
}

std::string render_diff_text(const Diff& diff, const DiffStyle& style) {
  std::string out;
  const auto add = [&](const std::string& line) { out += wrapped(line, "", "  ", style.columns); };
  add("A: " + printable(style.name_a));
  add("B: " + printable(style.name_b));
  for (const std::string& line : headlines(diff)) add(line);
  for (const std::string& line : diff_doubts(diff)) add(line);
  if (!unread_name(diff).empty()) return out;
  out += fmt::format("\nBy cause, MiB ({})\n{}", figure_name(diff.which),
                     cause_table(diff.causes, diff.rss, kChanceBytes).text(style.columns));
  const ShownLines shown = line_table(diff, style.top);
  out += fmt::format("\nBy line, MiB ({})\n", figure_name(diff.which));
  out += shown.rows == 0 ? "  no line differs by more than its error and 64 KiB\n" : shown.table.text(style.columns);
  if (shown.more > 0) out += "  " + more_text(shown) + "\n";
  return out;
}

std::string render_diff_markdown(const Diff& diff, const DiffStyle& style) {
  std::string out = fmt::format("# What changed in memory\n\n- A: {}\n- B: {}\n",
                                markdown_escaped(printable(style.name_a)), markdown_escaped(printable(style.name_b)));
  for (const std::string& line : headlines(diff)) out += "- **" + markdown_escaped(line) + "**\n";
  for (const std::string& line : diff_doubts(diff)) out += "- " + markdown_escaped(line) + "\n";
  if (!unread_name(diff).empty()) return out;
  out += fmt::format("\n## By cause, MiB ({})\n\n{}", figure_name(diff.which),
                     cause_table(diff.causes, diff.rss, kChanceBytes).markdown());
  const ShownLines shown = line_table(diff, style.top);
  out += fmt::format("\n## By line, MiB ({})\n\n", figure_name(diff.which));
  out += shown.rows == 0 ? "No line differs by more than its error and 64 KiB.\n" : shown.table.markdown();
  if (shown.more > 0) out.append("\n").append(more_text(shown)).append("\n");
  return out;
}

}  // namespace whyrss
