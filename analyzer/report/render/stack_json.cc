#include "report/render/stack_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/thread_starts.h"
#include "report/view/blame.h"

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

// A stack, and of the frames of a thread that waited those from the program's own on.
struct Parts {
  std::vector<FrameId> stack, during;
};

Parts parts_of(const StackTable& stacks, StackId id) {
  Parts parts;
  bool waited = false;
  for (const FrameId frame : stacks[id]) {
    if (is_thread_frame(stacks[frame])) waited = is_waiter_frame(stacks[frame]);
    if (!is_waiter_frame(stacks[frame])) (waited ? parts.during : parts.stack).push_back(frame);
  }
  const Frame* blamed = blamed_frame(stacks, id);
  const auto own = std::ranges::find_if(parts.during, [&](FrameId frame) { return &stacks[frame] == blamed; });
  if (own != parts.during.end()) parts.during.erase(parts.during.begin(), own);
  return parts;
}

}  // namespace

std::size_t StackJson::number_of(FrameId frame) {
  const auto [known, is_new] = frame_numbers_.try_emplace(frame, frames_.size());
  if (is_new) frames_.push_back(frame);
  return known->second;
}

std::size_t StackJson::number_of(const std::vector<FrameId>& frames) {
  const auto [known, is_new] = stack_numbers_.try_emplace(frames, stack_frames_.size());
  if (is_new) {
    std::vector<std::size_t>& numbers = stack_frames_.emplace_back();
    for (const FrameId frame : frames) numbers.push_back(number_of(frame));
  }
  return known->second;
}

Json StackJson::of_frames(const std::vector<FrameId>& frames) {
  if (schema_ != JsonSchema::v1) return number_of(frames);
  Json list = Json::array();
  for (const FrameId id : frames) list.push_back(frame_json(*stacks_, id));
  return list;
}

Json StackJson::operator()(StackId stack) { return of_frames((*stacks_)[stack]); }

void StackJson::set(Json& json, StackId stack) {
  const Parts parts = parts_of(*stacks_, stack);
  json["stack"] = of_frames(parts.stack);
  if (!parts.during.empty()) json["during"] = of_frames(parts.during);
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
