#include "model/stack_table.h"

namespace whyrss {
namespace {

void name(Frame& frame, const CodeLine& line) {
  frame.function = line.function;
  frame.file = line.file;
  frame.line = line.line;
}

}  // namespace

void StackTable::set_names(const std::map<FrameId, std::vector<CodeLine>>& names) {
  std::map<FrameId, std::vector<FrameId>> inlined;
  for (const auto& [id, lines] : names) {
    if (lines.empty()) continue;
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
      Frame part = (*this)[id];
      part.inlined = true;
      name(part, lines[i]);
      inlined[id].push_back(FrameId{static_cast<std::uint32_t>(frames_.size())});
      frames_.push_back(std::move(part));
    }
    name(frames_.at(static_cast<std::size_t>(id)), lines.back());
  }
  if (inlined.empty()) return;
  for (std::vector<FrameId>& stack : stacks_) {
    std::vector<FrameId> expanded;
    for (const FrameId id : stack) {
      if (const auto found = inlined.find(id); found != inlined.end())
        expanded.insert(expanded.end(), found->second.begin(), found->second.end());
      expanded.push_back(id);
    }
    stack = std::move(expanded);
  }
}

}  // namespace whyrss
