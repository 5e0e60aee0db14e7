#include "report/html/html_columns.h"

#include <array>
#include <bit>

namespace whyrss {
namespace {

static_assert(std::endian::native == std::endian::little);  // as the page reads them

constexpr std::array<std::string_view, 3> kTypeNames{"whole", "float64", "float32"};

template <typename T>
void append_raw(T value, std::string& bytes) {
  const auto raw = std::bit_cast<std::array<char, sizeof(T)>>(value);
  bytes.append(raw.data(), raw.size());
}

}  // namespace

void HtmlColumn::add(std::int64_t value) {
  auto rest = static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  for (; rest >= 0x80; rest >>= 7) bytes_ += static_cast<char>((rest & 0x7f) | 0x80);
  bytes_ += static_cast<char>(rest);
  ++count_;
}

void HtmlColumn::add_float(double value) {
  if (type_ == Type::float64)
    append_raw(value, bytes_);
  else
    append_raw(static_cast<float>(value), bytes_);
  ++count_;
}

nlohmann::ordered_json HtmlColumn::row() const {
  return {name_, kTypeNames.at(static_cast<std::size_t>(type_)), count_, bytes_.size()};
}

nlohmann::ordered_json HtmlColumns::rows() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const HtmlColumn& column : columns_) rows.push_back(column.row());
  return rows;
}

void HtmlColumns::append_to(std::string& text) const {
  for (const HtmlColumn& column : columns_) text += column.bytes();
}

}  // namespace whyrss
