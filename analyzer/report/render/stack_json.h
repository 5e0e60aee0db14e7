// Stacks in JSON reports: each where it is referred to (schema 1), or each once in a table (schema 2).
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

enum class JsonSchema : int { v1 = 1, v2 = 2 };

// The frames of a stack as reports give them, innermost first.
struct StackParts {
  std::vector<FrameId> stack;
  std::vector<FrameId> during;  // of the thread that waited, if one did, from the program's own on

  auto operator<=>(const StackParts&) const = default;
};
StackParts parts_of(const StackTable& stacks, StackId id);
// Of it the line to blame alone (report/view/blame.h).
StackParts blamed_part(const StackTable& stacks, StackId id);

class StackJson {
 public:
  // `stacks` must outlive this.
  StackJson(const StackTable& stacks, JsonSchema schema) : stacks_(&stacks), schema_(schema) {}

  // What stands for frames: a list of them, or its number in the table.
  nlohmann::ordered_json operator()(const std::vector<FrameId>& frames);
  // The number of a stack if the table has it, else of its line to blame.
  nlohmann::ordered_json number_of(StackId stack);
  // Sets `stack` of a JSON object, and `during` if there is one.
  void set(nlohmann::ordered_json& json, const StackParts& parts);

  [[nodiscard]] const StackTable& table() const { return *stacks_; }
  [[nodiscard]] JsonSchema schema() const { return schema_; }

  // The table of all that was referred to, as a member of an object with a comma behind it; nothing in schema 1.
  void write_table(const std::function<void(std::string_view)>& write) const;

 private:
  [[nodiscard]] nlohmann::ordered_json list_of(const std::vector<FrameId>& frames) const;

  const StackTable* stacks_;
  JsonSchema schema_;
  std::map<std::vector<FrameId>, std::size_t> numbers_{{{}, 0}};
  std::vector<const std::vector<FrameId>*> by_number_{&numbers_.begin()->first};  // keys of numbers_
};

}  // namespace whyrss
