// Aligned columns of text: the first ones left, numbers right. Widths follow the contents.
#pragma once

#include <string>
#include <vector>

namespace whyrss {

// Text that Markdown shows as it is, also in a table cell.
std::string markdown_escaped(const std::string& text);

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Cells beyond the columns are a mistake; missing ones are empty.
  void add(std::vector<std::string> cells);
  [[nodiscard]] std::string text(const std::string& indent = "  ") const;
  [[nodiscard]] std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace whyrss
