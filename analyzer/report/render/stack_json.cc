#include "report/render/stack_json.h"

#include <algorithm>
#include <iterator>
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

void keep_first(std::vector<FrameId>& frames) {
  if (!frames.empty()) frames.erase(std::next(frames.begin()), frames.end());
}

}  // namespace

StackParts parts_of(const StackTable& stacks, StackId id) {
  StackParts parts;
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

StackParts blamed_part(const StackTable& stacks, StackId id) {
  StackParts parts = parts_of(stacks, id);
  const Frame* blamed = blamed_frame(stacks, id);
  const auto found = std::ranges::find_if(parts.stack, [&](FrameId frame) { return &stacks[frame] == blamed; });
  if (found != parts.stack.end()) return {.stack = {*found}, .during = {}};
  keep_first(parts.stack);
  keep_first(parts.during);  // the line to blame
  return parts;
}

Json StackJson::list_of(const std::vector<FrameId>& frames) const {
  Json list = Json::array();
  for (const FrameId id : frames) list.push_back(frame_json(*stacks_, id));
  return list;
}

Json StackJson::operator()(const std::vector<FrameId>& frames) {
  if (schema_ == JsonSchema::v1) return list_of(frames);
  const auto [known, is_new] = numbers_.try_emplace(frames, by_number_.size());
  if (is_new) by_number_.push_back(&known->first);
  return known->second;
}

Json StackJson::number_of(StackId stack) {
  const auto known = numbers_.find(parts_of(*stacks_, stack).stack);
  return known != numbers_.end() ? Json(known->second) : (*this)(blamed_part(*stacks_, stack).stack);
}

void StackJson::set(Json& json, const StackParts& parts) {
  json["stack"] = (*this)(parts.stack);
  if (!parts.during.empty()) json["during"] = (*this)(parts.during);
}

void StackJson::write_table(const std::function<void(std::string_view)>& write) const {
  if (schema_ == JsonSchema::v1) return;
  write("  \"stacks\": [");
  std::string_view separator = "\n    ";
  for (const std::vector<FrameId>* frames : by_number_) {
    write(separator);
    write(list_of(*frames).dump(-1, ' ', false, Json::error_handler_t::replace));
    separator = ",\n    ";
  }
  write("\n  ],\n");
}

}  // namespace whyrss
