// The stacks that the page shows: a tree of frames, in which stacks share their callers, and names each once.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/stack_table.h"
#include "report/html/html_columns.h"

namespace whyrss {

class HtmlStrings {
 public:
  std::size_t number_of(const std::string& text);
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  std::unordered_map<std::string, std::size_t> numbers_;
  std::vector<const std::string*> texts_;  // by number
};

class HtmlStacks {
 public:
  // `stacks` must outlive this.
  explicit HtmlStacks(const StackTable& stacks) : stacks_(&stacks) {}

  [[nodiscard]] std::size_t number_of(StackId stack);
  [[nodiscard]] bool has(StackId stack) const { return stack_numbers_.contains(stack); }
  [[nodiscard]] std::size_t node_count() const { return nodes_.size(); }
  void write(HtmlStrings& strings, HtmlColumns& columns) const;

 private:
  struct Node {
    std::size_t parent = 0, frame = 0;  // frame: number + 1
  };
  struct Stack {
    std::size_t node = 0, line = 0;  // line: number of the blamed frame + 1
  };

  std::size_t number_of(FrameId frame);
  std::size_t child_of(std::size_t parent, std::size_t frame);

  const StackTable* stacks_;
  std::unordered_map<StackId, std::size_t> stack_numbers_{{kEmptyStack, 0}};
  std::unordered_map<FrameId, std::size_t> frame_numbers_;
  std::unordered_map<std::uint64_t, std::size_t> children_;  // parent << 32 | frame
  std::vector<FrameId> frames_;
  std::vector<Node> nodes_{1};  // 0: below the outermost frames
  std::vector<Stack> list_{1};  // 0: nothing is known
};

}  // namespace whyrss
