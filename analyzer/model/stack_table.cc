#include "model/stack_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace whyrss {
namespace {

// Differs from run to run: no recording can be crafted in which all of them are the same.
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

std::size_t StackTable::slot_of(Node caller, FrameId frame) const {
  std::size_t slot = Hash().add(static_cast<std::uint64_t>(caller) << 32 | static_cast<std::uint64_t>(frame)).value() &
                     (slots_.size() - 1);
  while (slots_[slot] != kRoot && (call(slots_[slot]).caller != caller || call(slots_[slot]).frame != frame))
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void StackTable::grow_slots() {
  constexpr std::size_t kLeastSlots = 1024;
  slots_.assign(std::max(kLeastSlots, slots_.size() * 2), kRoot);
  for (std::uint32_t i = 1; i < nodes_.size(); ++i) slots_[slot_of(nodes_[i].caller, nodes_[i].frame)] = Node{i};
}

StackTable::Node StackTable::called_from(Node caller, FrameId frame) {
  if (nodes_.size() * 2 > slots_.size()) grow_slots();
  Node& known = slots_[slot_of(caller, frame)];
  if (known == kRoot) {
    known = Node{static_cast<std::uint32_t>(nodes_.size())};
    nodes_.push_back({.frame = frame, .caller = caller});
  }
  return known;
}

StackId StackTable::intern(const std::vector<FrameId>& stack) {
  if (stack.empty()) return kEmptyStack;
  std::size_t alike = 0;
  while (alike < std::min(stack.size(), last_way_.size()) &&
         call(last_way_[alike]).frame == stack[stack.size() - 1 - alike])
    ++alike;
  last_way_.resize(alike);
  Node node = alike == 0 ? kRoot : last_way_.back();
  for (std::size_t left = stack.size() - alike; left > 0; --left)
    last_way_.push_back(node = called_from(node, stack[left - 1]));
  StackId& id = call(node).stack;
  if (id == kEmptyStack) {
    id = StackId{static_cast<std::uint32_t>(stacks_.size())};
    stacks_.push_back(node);
    blame_memo_ = {};
  }
  return id;
}

std::vector<FrameId> StackTable::operator[](StackId id) const {
  std::vector<FrameId> frames;
  for (Node node = stacks_.at(static_cast<std::size_t>(id)); node != kRoot; node = call(node).caller)
    frames.push_back(call(node).frame);
  return frames;
}

void StackTable::set_names(const std::map<FrameId, std::vector<CodeLine>>& names) {
  blame_memo_ = {};
  last_way_ = {};
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
  const std::vector<Call> calls = std::exchange(nodes_, std::vector<Call>(1));
  slots_ = {};
  std::vector<Node> moved(calls.size());
  for (std::size_t i = 1; i < calls.size(); ++i) {
    Node node = called_from(moved[static_cast<std::size_t>(calls[i].caller)], calls[i].frame);
    if (const auto found = inlined.find(calls[i].frame); found != inlined.end())
      for (std::size_t left = found->second.size(); left > 0; --left) node = called_from(node, found->second[left - 1]);
    moved[i] = node;
  }
  for (Node& node : stacks_) node = moved[static_cast<std::size_t>(node)];
}

}  // namespace whyrss
