#include "report/diff/diff_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "report/view/blame_sums.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

using Align = Table::Align;

constexpr double kShownRange = 0.01;  // of the change: figures have three digits

std::string signed_mib(std::int64_t bytes) {
  const std::string text = mib(bytes);
  return bytes > 0 && text != "0.0" ? "+" + text : text;
}

// "" where it says nothing.
std::string percent_text(const DiffFigure& figure) {
  constexpr double kMostPercent = 1000;
  const std::optional<double> percent = figure.percent();
  if (!percent || figure.state() == DiffState::added) return "";
  if (std::abs(*percent) > kMostPercent)
    return fmt::format("{:.0f} times", static_cast<double>(figure.b) / static_cast<double>(figure.a));
  const std::string text = fmt::format("{:+.0f} %", *percent);
  return text == "+0 %" || text == "-0 %" ? "0 %" : text;
}

}  // namespace

std::string change_text(const DiffFigure& figure) {
  std::string text = signed_mib(figure.change()) + error_text(figure.change(), figure.variance);
  const auto range = static_cast<double>(figure.more_a + figure.more_b);
  if (range <= kShownRange * std::abs(static_cast<double>(figure.change()))) return text;
  return fmt::format("{} ({} to {})", text, signed_mib(figure.least_change()), signed_mib(figure.most_change()));
}

std::string change_line(const std::string& what, const DiffFigure& figure) {
  const std::string percent = percent_text(figure);
  const bool is_noise = figure.change() != 0 && figure.state() == DiffState::same;
  return fmt::format("{}: {} in A, {} in B: {}{}{}", what, size_text(figure.a), size_text(figure.b),
                     growth_text(figure.change()), percent.empty() ? "" : fmt::format(" ({})", percent),
                     is_noise ? ", within the error" : "");
}

Table cause_table(const std::vector<DiffCause>& causes, const DiffFigure& rss, std::int64_t shown_bytes) {
  Table table(
      {{"cause"}, {"A", Align::right}, {"B", Align::right}, {"change", Align::right}, {"", Align::right}, {""}});
  const auto add = [&](std::string title, const DiffFigure& figure) {
    const bool is_shown = std::abs(figure.change()) >= shown_bytes;
    const std::string percent = percent_text(figure);
    table.add({std::move(title), mib(figure.a), mib(figure.b), change_text(figure), percent.empty() ? "-" : percent,
               is_shown ? slug_of(figure.state()) : ""});
  };
  DiffFigure small;
  std::size_t small_count = 0;
  for (const DiffCause& cause : causes) {
    const std::int64_t most = std::max(std::abs(cause.figure.a), std::abs(cause.figure.b));
    if (most >= shown_bytes) {
      add(std::string(info(cause.cause).title), cause.figure);
      continue;
    }
    ++small_count;
    small.a += cause.figure.a;
    small.b += cause.figure.b;
    small.variance += cause.figure.variance;
  }
  if (small_count > 0) add("smaller causes", small);
  add("= RSS", rss);
  return table;
}

std::string moved_text(const DiffLine& line) {
  const bool moved = line.line_a > 0 && line.line_b > 0 && line.line_a != line.line_b;
  return moved ? fmt::format(" (line {} in A)", line.line_a) : "";
}

}  // namespace whyrss
