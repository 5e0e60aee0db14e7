// Stacks in JSON reports: each where it is referred to (schema 1), or each once in a table (schema 2).
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

enum class JsonSchema : int { v1 = 1, v2 = 2 };

class StackJson {
 public:
  // `stacks` must outlive this.
  StackJson(const StackTable& stacks, JsonSchema schema) : stacks_(&stacks), schema_(schema) {}

  // What stands for a stack: a list of frames, or its number in the table.
  nlohmann::ordered_json operator()(StackId stack);
  // Sets `stack` of a JSON object, and apart from it `during`: the frames of the thread that waited, if one did, from
  // the program's own on.
  void set(nlohmann::ordered_json& json, StackId stack);

  [[nodiscard]] const StackTable& table() const { return *stacks_; }

  // The tables of all that was referred to, as members of an object with a comma behind each; nothing in schema 1.
  void write_tables(const std::function<void(std::string_view)>& write) const;

 private:
  nlohmann::ordered_json of_frames(const std::vector<FrameId>& frames);
  std::size_t number_of(const std::vector<FrameId>& frames);
  std::size_t number_of(FrameId frame);

  const StackTable* stacks_;
  JsonSchema schema_;
  std::map<std::vector<FrameId>, std::size_t> stack_numbers_{{{}, 0}};
  std::unordered_map<FrameId, std::size_t> frame_numbers_;
  std::vector<FrameId> frames_;                            // by number
  std::vector<std::vector<std::size_t>> stack_frames_{1};  // by number: numbers of frames, innermost first
};

}  // namespace whyrss
