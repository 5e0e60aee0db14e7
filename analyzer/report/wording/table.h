// Aligned columns of text: the first ones left, numbers right. Widths follow the contents, as far as there is room.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace whyrss {

// Text that Markdown shows as it is, also in a table cell.
std::string markdown_escaped(const std::string& text);

// A job summary of GitHub takes 1 MiB in all.
inline constexpr std::size_t kMarkdownRows = 200;

class Table {
 public:
  static constexpr std::size_t kAnyWidth = static_cast<std::size_t>(-1);
  enum class Align { left, right };
  // What becomes of cells that are too wide for the text: names lose their middle, sentences and lines of code
  // go on in the next line, figures (and all that is aligned right) stay.
  enum class Fit { shorten, wrap, keep };
  struct Column {
    std::string title;
    Align align = Align::left;
    Fit fit = Fit::shorten;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Cells beyond the columns are a mistake; missing ones are empty.
  void add(std::vector<std::string> cells);
  // In lines of at most `columns`. Columns that do not fit beside the others even when they are as narrow as can be
  // stand in a table of their own below, again behind the first column.
  [[nodiscard]] std::string text(std::size_t columns = kAnyWidth) const;
  [[nodiscard]] std::string markdown() const;  // kMarkdownRows at most, and how many more there are

 private:
  [[nodiscard]] bool is_figure(std::size_t column) const {
    return columns_[column].align == Align::right || columns_[column].fit == Fit::keep;
  }
  [[nodiscard]] std::size_t natural_width(std::size_t column) const;
  [[nodiscard]] std::size_t least_width(std::size_t column) const;
  [[nodiscard]] std::vector<std::size_t> fitted_widths(const std::vector<std::size_t>& shown,
                                                       std::size_t columns) const;
  [[nodiscard]] std::vector<std::vector<std::size_t>> parts(std::size_t columns) const;
  void add_row(const std::vector<std::vector<std::string>>& cells, const std::vector<std::size_t>& shown,
               const std::vector<std::size_t>& widths, bool at_bottom, std::string& out) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace whyrss
