#include "load/unsplit_memory.h"

#include <cstdint>
#include <map>
#include <vector>

#include "model/library_allocator.h"

namespace whyrss {
namespace {

// Asks once for each stack.
class UnsplitStacks {
 public:
  explicit UnsplitStacks(const StackTable& stacks) : stacks_(stacks), known_(stacks.stack_count()) {}

  bool contains(const Site& site) {
    if (site.cause != Cause::anonymous || site.stack == kEmptyStack) return false;
    Answer& answer = known_.at(static_cast<std::size_t>(site.stack));
    if (answer == Answer::unknown) answer = allocator_that_mapped(stacks_, site.stack) ? Answer::yes : Answer::no;
    return answer == Answer::yes;
  }

 private:
  enum class Answer : std::uint8_t { unknown, no, yes };
  const StackTable& stacks_;
  std::vector<Answer> known_;
};

bool has_any(const SliceList& slices, UnsplitStacks& stacks) {
  if (slices.sum_of(Cause::anonymous).count == 0) return false;
  for (const Slice& slice : slices)
    if (stacks.contains(slice.site)) return true;
  return false;
}

// Where a stripped file holds an allocator.
void name_nameless(RecordingAccount& recording, const NameTable& names) {
  StackTable& stacks = recording.stacks;
  std::map<FrameId, std::vector<CodeLine>> lines;
  for (const StackId stack : recording.allocator_stacks) {
    const std::vector<FrameId> frames = stacks[stack];
    if (frames.empty()) continue;
    const Frame& innermost = stacks[frames.front()];
    if (innermost.kind != FrameKind::native || !innermost.function.empty()) continue;
    const auto known = names.find(stacks[innermost.module]);
    if (known != names.end() && !known->second.allocator.empty())
      lines[frames.front()] = {{nameless_function(known->second.allocator), "", 0}};
  }
  stacks.set_names(lines);
}

}  // namespace

void set_apart_unsplit(RecordingAccount& recording, const NameTable& names) {
  name_nameless(recording, names);
  UnsplitStacks stacks(recording.stacks);
  for (ProcessAccount& process : recording.processes) {
    for (Account& walk : process.accounts) {
      if (!has_any(walk.slices, stacks)) continue;
      for (Slice& slice : walk.slices.open())
        if (stacks.contains(slice.site)) slice.site.cause = Cause::heap_unsplit;
      walk.slices.pack();
    }
  }
}

}  // namespace whyrss
