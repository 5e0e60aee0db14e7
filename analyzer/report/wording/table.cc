#include "report/wording/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "report/wording/format.h"
#include "report/wording/wrap.h"
#include "support/result.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::string_view kIndent = "  ", kBetween = "  ";
// Of names. The chart of a timeline fits beside the first one into 60 columns.
constexpr std::size_t kLeastKey = 8, kLeastName = 16;
constexpr std::size_t kMostLines = 6;  // of a cell, about

}  // namespace

std::string markdown_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("|\\`*_<[~$&#").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void Table::add(std::vector<std::string> cells) {
  require(cells.size() <= columns_.size(), "a table row has more cells than columns");
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::size_t Table::natural_width(std::size_t column) const {
  std::size_t width = text_width(columns_[column].title);
  for (const auto& row : rows_) width = std::max(width, text_width(row[column]));
  return width;
}

// Of figures all that they have; their titles may be broken at blanks.
std::size_t Table::least_width(std::size_t column) const {
  if (!is_figure(column)) return std::min(natural_width(column), column == 0 ? kLeastKey : kLeastName);
  std::size_t width = 0;
  for (const std::string& word : split(columns_[column].title, ' ')) width = std::max(width, text_width(word));
  for (const auto& row : rows_) width = std::max(width, text_width(row[column]));
  return width;
}

// Titles of figures are broken first, which costs a line; then the widest of the others gives way.
std::vector<std::size_t> Table::fitted_widths(const std::vector<std::size_t>& shown, std::size_t columns) const {
  std::vector<std::size_t> widths(columns_.size()), least(columns_.size());
  std::size_t total = kIndent.size() + kBetween.size() * (shown.size() - 1);
  for (const std::size_t i : shown) {
    widths[i] = natural_width(i);
    least[i] = least_width(i);
    total += widths[i];
  }
  for (const bool figures : {true, false})
    while (total > columns) {
      std::optional<std::size_t> widest;
      for (const std::size_t i : shown)
        if (is_figure(i) == figures && widths[i] > least[i] && (!widest || widths[i] > widths[*widest])) widest = i;
      if (!widest) break;
      --widths[*widest];
      --total;
    }
  return widths;
}

// As many columns beside each other as fit when they are as narrow as can be.
std::vector<std::vector<std::size_t>> Table::parts(std::size_t columns) const {
  std::vector<std::vector<std::size_t>> parts(1);
  std::size_t total = kIndent.size();
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::size_t least = least_width(i);
    if (parts.back().size() > 1 && total + least > columns) {
      parts.push_back({0});
      total = kIndent.size() + least_width(0) + kBetween.size();
    }
    parts.back().push_back(i);
    total += least + kBetween.size();
  }
  return parts;
}

// `cells`: the lines of each.
void Table::add_row(const std::vector<std::vector<std::string>>& cells, const std::vector<std::size_t>& shown,
                    const std::vector<std::size_t>& widths, bool at_bottom, std::string& out) const {
  std::size_t height = 1;
  for (const std::size_t i : shown) height = std::max(height, cells[i].size());
  for (std::size_t at = 0; at < height; ++at) {
    std::string line(kIndent);
    for (const std::size_t i : shown) {
      const std::size_t above = at_bottom ? height - cells[i].size() : 0;
      const std::string cell = at >= above && at - above < cells[i].size() ? cells[i][at - above] : "";
      const std::string pad(widths[i] - std::min(widths[i], text_width(cell)), ' ');
      line.append(i == shown.front() ? "" : kBetween);
      line += columns_[i].align == Align::left ? cell + pad : pad + cell;
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
}

std::string Table::text(std::size_t columns) const {
  std::string out;
  for (const std::vector<std::size_t>& shown : parts(columns)) {
    const std::vector<std::size_t> widths = fitted_widths(shown, columns);
    const auto lines_of = [&](std::size_t i, const std::string& cell, bool wraps) {
      if (text_width(cell) <= widths[i]) return std::vector{cell};
      if (!wraps) return std::vector{middle_shortened(cell, widths[i])};
      return wrapped_lines(middle_shortened(cell, kMostLines * widths[i]), widths[i], widths[i]);
    };
    std::vector<std::vector<std::string>> cells(columns_.size());
    for (const std::size_t i : shown) cells[i] = lines_of(i, columns_[i].title, true);
    add_row(cells, shown, widths, true, out);
    for (const auto& row : rows_) {
      for (const std::size_t i : shown) cells[i] = lines_of(i, row[i], columns_[i].fit == Fit::wrap);
      add_row(cells, shown, widths, false, out);
    }
  }
  return out;
}

std::string Table::markdown() const {
  std::string out = "|", rule = "|";
  for (const Column& column : columns_) {
    out += " " + column.title + " |";
    rule += column.align == Align::left ? " --- |" : " ---: |";
  }
  out += "\n" + rule + "\n";
  for (std::size_t i = 0; i < std::min(rows_.size(), kMarkdownRows); ++i) {
    out += "|";
    for (const std::string& cell : rows_[i]) out.append(" ").append(markdown_escaped(cell)).append(" |");
    out += "\n";
  }
  if (rows_.size() > kMarkdownRows)
    out += fmt::format("\n{} more rows are left out here.\n", rows_.size() - kMarkdownRows);
  return out;
}

}  // namespace whyrss
