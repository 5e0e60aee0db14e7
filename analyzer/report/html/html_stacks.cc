#include "report/html/html_stacks.h"

#include "report/view/blame.h"

namespace whyrss {

std::size_t HtmlStrings::number_of(const std::string& text) {
  const auto [known, is_new] = numbers_.try_emplace(text, texts_.size());
  if (is_new) texts_.push_back(&known->first);
  return known->second;
}

nlohmann::ordered_json HtmlStrings::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string* text : texts_) list.push_back(*text);
  return list;
}

std::size_t HtmlStacks::number_of(FrameId frame) {
  const auto [known, is_new] = frame_numbers_.try_emplace(frame, frames_.size());
  if (is_new) frames_.push_back(frame);
  return known->second;
}

std::size_t HtmlStacks::child_of(std::size_t parent, std::size_t frame) {
  const auto [known, is_new] = children_.try_emplace(std::uint64_t{parent} << 32 | frame, nodes_.size());
  if (is_new) nodes_.push_back({parent, frame});
  return known->second;
}

std::size_t HtmlStacks::number_of(StackId stack) {
  const auto [known, is_new] = stack_numbers_.try_emplace(stack, list_.size());
  if (!is_new) return known->second;
  const std::vector<FrameId>& frames = (*stacks_)[stack];
  const Frame* blamed = blamed_frame(*stacks_, stack);
  Stack entry;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const std::size_t number = number_of(*frame) + 1;
    entry.node = child_of(entry.node, number);
    if (blamed == &(*stacks_)[*frame]) entry.line = number;
  }
  list_.push_back(entry);
  return known->second;
}

void HtmlStacks::write(HtmlStrings& strings, HtmlColumns& columns) const {
  HtmlColumn& kind = columns.whole("frame_kind");  // 0 Python, 1 native, 2 native and inlined
  HtmlColumn& function = columns.whole("frame_function");
  HtmlColumn& file = columns.whole("frame_file");
  HtmlColumn& line = columns.whole("frame_line");
  HtmlColumn& module = columns.whole("frame_module");
  HtmlColumn& label = columns.whole("frame_label");
  for (const FrameId id : frames_) {
    const Frame& frame = (*stacks_)[id];
    kind.add(frame.kind == FrameKind::python ? 0 : frame.inlined ? 2 : 1);
    const auto add = [&strings](HtmlColumn& column, const std::string& text) {
      column.add(static_cast<std::int64_t>(strings.number_of(text)));
    };
    add(function, frame.function);
    add(file, frame.file);
    line.add(frame.line);
    add(module, (*stacks_)[frame.module].path);
    add(label, code_line(*stacks_, &frame));
  }
  HtmlColumn& parent = columns.whole("node_parent");  // how far before it
  HtmlColumn& node_frame = columns.whole("node_frame");
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    parent.add(static_cast<std::int64_t>(i - nodes_[i].parent));
    node_frame.add_delta(static_cast<std::int64_t>(nodes_[i].frame) - 1);
  }
  HtmlColumn& node = columns.whole("stack_node");
  HtmlColumn& blamed = columns.whole("stack_line");
  for (const Stack& stack : list_) {
    node.add_delta(static_cast<std::int64_t>(stack.node));
    blamed.add(static_cast<std::int64_t>(stack.line));
  }
}

}  // namespace whyrss
