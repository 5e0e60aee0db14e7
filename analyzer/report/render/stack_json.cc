#include "report/render/stack_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

Json frame_json(const StackTable& stacks, FrameId id) {
  const Frame& frame = stacks[id];
  const bool native = frame.kind == FrameKind::native;
  Json entry{
      {"kind", native ? "native" : "python"}, {"function", frame.function}, {"file", frame.file}, {"line", frame.line}};
  if (frame.end_line > 0) entry["end_line"] = frame.end_line;
  if (frame.column > 0) entry["column"] = frame.column;
  if (frame.end_column > 0) entry["end_column"] = frame.end_column;
  if (native) entry["module"] = stacks[frame.module].path;
  if (frame.inlined) entry["inlined"] = true;
  return entry;
}

// One element of a table a line.
template <typename List, typename Text>
void write_table(std::string_view name, const List& list, const std::function<void(std::string_view)>& write,
                 Text text_of) {
  write(fmt::format("  \"{}\": [", name));
  std::string_view separator = "\n    ";
  for (const auto& element : list) {
    write(separator);
    write(text_of(element));
    separator = ",\n    ";
  }
  write(list.empty() ? "],\n" : "\n  ],\n");
}

}  // namespace

std::size_t StackJson::number_of(FrameId frame) {
  const auto [known, is_new] = frame_numbers_.try_emplace(frame, frames_.size());
  if (is_new) frames_.push_back(frame);
  return known->second;
}

std::size_t StackJson::number_of(StackId stack) {
  const auto [known, is_new] = stack_numbers_.try_emplace(stack, stack_frames_.size());
  if (is_new) {
    std::vector<std::size_t>& frames = stack_frames_.emplace_back();
    for (const FrameId frame : (*stacks_)[stack]) frames.push_back(number_of(frame));
  }
  return known->second;
}

Json StackJson::operator()(StackId stack) {
  if (schema_ != JsonSchema::v1) return number_of(stack);
  Json frames = Json::array();
  for (const FrameId id : (*stacks_)[stack]) frames.push_back(frame_json(*stacks_, id));
  return frames;
}

void StackJson::write_tables(const std::function<void(std::string_view)>& write) const {
  if (schema_ == JsonSchema::v1) return;
  write_table("frames", frames_, write, [&](FrameId id) {
    return frame_json(*stacks_, id).dump(-1, ' ', false, Json::error_handler_t::replace);
  });
  write_table("stacks", stack_frames_, write,
              [](const std::vector<std::size_t>& frames) { return fmt::format("[{}]", fmt::join(frames, ",")); });
}

}  // namespace whyrss
