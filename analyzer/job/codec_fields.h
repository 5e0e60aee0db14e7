// How the messages of part.proto are written and read, field by field.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <protozero/pbf_builder.hpp>
#include <protozero/pbf_message.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "support/result.h"

namespace whyrss::part_codec {

using Tag = protozero::pbf_tag_type;
using Numbers = std::vector<std::int64_t>;

// What others refer to by number.
class Texts {
 public:
  std::uint32_t number(const std::string& text) {
    const auto [known, is_new] = numbers_.try_emplace(text, static_cast<std::uint32_t>(list_.size()));
    if (is_new) list_.push_back(text);
    return known->second;
  }
  [[nodiscard]] const std::vector<std::string>& list() const { return list_; }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> list_;
};

// Defaults are left out, as protobuf does.
template <typename Builder, typename Field>
void add_text(Builder& builder, Field field, const std::string& text) {
  if (!text.empty()) builder.add_string(field, text);
}
template <typename Builder, typename Field>
void add_number(Builder& builder, Field field, std::int64_t value) {
  if (value != 0) builder.add_sint64(field, value);
}
template <typename Builder, typename Field>
void add_optional(Builder& builder, Field field, const std::optional<std::int64_t>& value) {
  if (value) builder.add_sint64(field, *value);
}

template <typename Builder, typename Field>
void add_packed(Builder& builder, Field field, const Numbers& numbers) {
  if (!numbers.empty()) builder.add_packed_sint64(field, numbers.begin(), numbers.end());
}

struct Malformed : std::exception {};

// The value of a field, if it is of that type: protozero only asserts that.
template <typename Field>
void expect_type(const protozero::pbf_message<Field>& message, protozero::pbf_wire_type type) {
  if (!message.has_wire_type(type)) throw Malformed();
}
template <typename Field>
protozero::data_view view_of(protozero::pbf_message<Field>& message) {
  expect_type(message, protozero::pbf_wire_type::length_delimited);
  return message.get_view();
}
template <typename Field>
std::string text_of(protozero::pbf_message<Field>& message) {
  const protozero::data_view view = view_of(message);
  return {view.data(), view.size()};
}
template <typename Field>
std::int64_t signed_of(protozero::pbf_message<Field>& message) {
  expect_type(message, protozero::pbf_wire_type::varint);
  return message.get_sint64();
}
template <typename Field>
std::uint64_t unsigned_of(protozero::pbf_message<Field>& message) {
  expect_type(message, protozero::pbf_wire_type::varint);
  return message.get_uint64();
}
template <typename Field>
std::uint64_t fixed_of(protozero::pbf_message<Field>& message) {
  expect_type(message, protozero::pbf_wire_type::fixed64);
  return message.get_fixed64();
}

inline const std::string& text_at(const std::vector<std::string>& texts, std::uint64_t number) {
  if (number >= texts.size()) throw Malformed();
  return texts[number];
}

template <typename Field>
Numbers numbers_of(protozero::pbf_message<Field>& message, std::size_t divisor = 1) {
  expect_type(message, protozero::pbf_wire_type::length_delimited);
  const auto range = message.get_packed_sint64();
  Numbers numbers;  // not by its iterators: it would decode all of them twice
  for (const std::int64_t number : range) numbers.push_back(number);
  if (numbers.size() % divisor != 0) throw Malformed();
  return numbers;
}

// A field of a message that is a member as it is: once for both ways.
template <typename Message, typename Field>
struct PlainField {
  Field field;
  std::variant<std::string Message::*, std::int64_t Message::*, std::optional<std::int64_t> Message::*,
               std::uint64_t Message::*, bool Message::*>
      member;
};

template <typename Builder, typename Field>
void add_value(Builder& builder, Field field, const std::string& value) {
  add_text(builder, field, value);
}
template <typename Builder, typename Field>
void add_value(Builder& builder, Field field, std::int64_t value) {
  add_number(builder, field, value);
}
template <typename Builder, typename Field>
void add_value(Builder& builder, Field field, const std::optional<std::int64_t>& value) {
  add_optional(builder, field, value);
}
template <typename Builder, typename Field>
void add_value(Builder& builder, Field field, std::uint64_t value) {
  builder.add_uint64(field, value);
}
template <typename Builder, typename Field>
void add_value(Builder& builder, Field field, bool value) {
  builder.add_bool(field, value);
}

template <typename Field>
void take_value(protozero::pbf_message<Field>& message, std::string& value) {
  value = text_of(message);
}
template <typename Field>
void take_value(protozero::pbf_message<Field>& message, std::int64_t& value) {
  value = signed_of(message);
}
template <typename Field>
void take_value(protozero::pbf_message<Field>& message, std::optional<std::int64_t>& value) {
  value = signed_of(message);
}
template <typename Field>
void take_value(protozero::pbf_message<Field>& message, std::uint64_t& value) {
  value = unsigned_of(message);
}
template <typename Field>
void take_value(protozero::pbf_message<Field>& message, bool& value) {
  value = unsigned_of(message) != 0;
}

template <typename Message, typename Field, std::size_t count>
void add_plain(protozero::pbf_builder<Field>& builder, const Message& from,
               const std::array<PlainField<Message, Field>, count>& fields) {
  for (const auto& [field, member] : fields)
    std::visit([&, field = field](auto part) { add_value(builder, field, from.*part); }, member);
}
// False: the field that the message is at is none of them.
template <typename Message, typename Field, std::size_t count>
bool take_plain(protozero::pbf_message<Field>& message, Message& to,
                const std::array<PlainField<Message, Field>, count>& fields) {
  const auto known = std::ranges::find(fields, message.tag(), &PlainField<Message, Field>::field);
  if (known == fields.end()) return false;
  std::visit([&](auto part) { take_value(message, to.*part); }, known->member);
  return true;
}

// What `decode` makes of the bytes, or why they are none.
template <typename Value, typename Decode>
Result<Value> decoded(std::string_view bytes, const char* what, const Decode& decode) {
  try {
    return decode(protozero::data_view(bytes.data(), bytes.size()));
  } catch (const protozero::exception& error) {
    return Error{fmt::format("{} is damaged: {}", what, error.what())};
  } catch (const Malformed&) {
    return Error{fmt::format("{} is damaged: its numbers do not fit", what)};
  }
}

}  // namespace whyrss::part_codec
