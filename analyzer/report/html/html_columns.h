// Columns of numbers as the HTML page reads them: each a run of bytes, described by one row of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace whyrss {

// Of one type: whole numbers as zigzag LEB128, or little-endian IEEE 754.
class HtmlColumn {
 public:
  enum class Type : char { whole, float64, float32 };

  HtmlColumn(std::string_view name, Type type) : name_(name), type_(type) {}

  void add(std::int64_t value);         // whole
  void add_float(double value);         // float64, float32
  void add_delta(std::int64_t value) {  // whole: the difference to the last one that was added so
    add(value - last_);
    last_ = value;
  }
  void begin_run() { last_ = 0; }  // of deltas

  [[nodiscard]] nlohmann::ordered_json row() const;  // [name, type, count, bytes]
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string_view name_;
  Type type_;
  std::size_t count_ = 0;
  std::int64_t last_ = 0;
  std::string bytes_;
};

class HtmlColumns {
 public:
  HtmlColumn& whole(std::string_view name) { return columns_.emplace_back(name, HtmlColumn::Type::whole); }
  HtmlColumn& float64(std::string_view name) { return columns_.emplace_back(name, HtmlColumn::Type::float64); }
  HtmlColumn& float32(std::string_view name) { return columns_.emplace_back(name, HtmlColumn::Type::float32); }

  [[nodiscard]] nlohmann::ordered_json rows() const;
  void append_to(std::string& text) const;  // all bytes, in the order of rows()

 private:
  std::deque<HtmlColumn> columns_;  // references stay valid
};

}  // namespace whyrss
