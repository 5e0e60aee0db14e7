#include "report/table.h"

#include <algorithm>
#include <string_view>

#include "report/format.h"
#include "support/result.h"

namespace whyrss {

std::string markdown_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("|\\`*_<[").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void Table::add(std::vector<std::string> cells) {
  require(cells.size() <= columns_.size(), "a table row has more cells than columns");
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(const std::string& indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = text_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, text_width(row[i]));
    widths.push_back(width);
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line = indent;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = cell_of(i);
      const std::string pad(widths[i] - text_width(cell), ' ');
      line += (i == 0 ? "" : "  ") + (columns_[i].align == Align::left ? cell + pad : pad + cell);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line([&](std::size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](std::size_t i) { return row[i]; });
  return out;
}

std::string Table::markdown() const {
  std::string out = "|", rule = "|";
  for (const Column& column : columns_) {
    out += " " + column.title + " |";
    rule += column.align == Align::left ? " --- |" : " ---: |";
  }
  out += "\n" + rule + "\n";
  for (const auto& row : rows_) {
    out += "|";
    for (const std::string& cell : row) out.append(" ").append(markdown_escaped(cell)).append(" |");
    out += "\n";
  }
  return out;
}

}  // namespace whyrss
