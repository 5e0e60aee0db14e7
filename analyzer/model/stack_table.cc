#include "model/stack_table.h"

#include <string_view>

namespace whyrss {
namespace {

// Differs from run to run: nobody can make a recording in which all of them are the same.
class Hash {
 public:
  Hash& add(std::uint64_t value) {
    value_ = (value_ ^ value) * 0x9e37'79b9'7f4a'7c15;
    value_ ^= value_ >> 32;
    return *this;
  }
  Hash& add(std::string_view text) { return add(std::hash<std::string_view>{}(text)); }
  [[nodiscard]] std::size_t value() const { return value_; }

 private:
  static constexpr char kSomewhere = 0;
  std::uint64_t value_ = reinterpret_cast<std::uint64_t>(&kSomewhere) * 0x9e37'79b9'7f4a'7c15;
};

std::size_t hash_of(const Module& module) { return Hash().add(module.path).add(module.build_id).value(); }

std::size_t hash_of(const Frame& frame) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(frame.module)).add(frame.address).add(frame.function).add(frame.file);
  for (const int place : {frame.line, frame.column}) hash.add(static_cast<std::uint64_t>(place));
  return hash.value();
}

std::size_t hash_of(const std::vector<FrameId>& stack) {
  Hash hash;
  for (const FrameId frame : stack) hash.add(static_cast<std::uint64_t>(frame));
  return hash.value();
}

template <typename T, typename Id>
Id intern_in(const T& value, std::unordered_multimap<std::size_t, Id>& ids, std::vector<T>& values) {
  const std::size_t hash = hash_of(value);
  const auto [first, last] = ids.equal_range(hash);
  for (auto known = first; known != last; ++known)
    if (values[static_cast<std::size_t>(known->second)] == value) return known->second;
  const Id id{static_cast<std::uint32_t>(values.size())};
  ids.emplace(hash, id);
  values.push_back(value);
  return id;
}

void name(Frame& frame, const CodeLine& line) {
  frame.function = line.function;
  frame.file = line.file;
  frame.line = line.line;
}

}  // namespace

ModuleId StackTable::intern(const Module& module) { return intern_in(module, module_ids_, modules_); }
FrameId StackTable::intern(const Frame& frame) { return intern_in(frame, frame_ids_, frames_); }
StackId StackTable::intern(const std::vector<FrameId>& stack) {
  return stack.empty() ? kEmptyStack : intern_in(stack, stack_ids_, stacks_);
}

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
