// What stack records were resolved to, by a hash of what they hold: a shim whose table of stacks is full describes the
// same stack again and again, each time under another id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

struct ResolvedStack {
  StackId id = kEmptyStack;
  bool from_allocator = false;  // the innermost native frame is in the library that serves malloc
};

// Of bounded size: what finds no place takes that of another one.
class StackMemo {
 public:
  // nullptr: not known, or not any more. `hash` is of 64 good bits and not 0.
  [[nodiscard]] const ResolvedStack* find(std::uint64_t hash) const {
    if (entries_.empty()) return nullptr;
    const Entry& entry = entries_[hash & (entries_.size() - 1)];
    return entry.hash == hash ? &entry.stack : nullptr;
  }

  void keep(std::uint64_t hash, ResolvedStack stack) {
    if (used_ * 2 >= entries_.size() && entries_.size() < kMostEntries) grow();
    used_ += place(entries_, {hash, stack}) ? 1 : 0;
  }

 private:
  struct Entry {
    std::uint64_t hash = 0;
    ResolvedStack stack;
  };
  static constexpr std::size_t kLeastEntries = 256, kMostEntries = 1U << 17;

  static bool place(std::vector<Entry>& entries, const Entry& entry) {
    Entry& at = entries[entry.hash & (entries.size() - 1)];
    const bool was_free = at.hash == 0;
    at = entry;
    return was_free;
  }
  void grow() {
    std::vector<Entry> larger(entries_.empty() ? kLeastEntries : entries_.size() * 4);
    used_ = 0;
    for (const Entry& entry : entries_)
      if (entry.hash != 0) used_ += place(larger, entry) ? 1 : 0;
    entries_ = std::move(larger);
  }

  std::vector<Entry> entries_;  // a power of 2
  std::size_t used_ = 0;
};

}  // namespace whyrss
