#include "load/unsplit_memory.h"

#include <cstdint>
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

}  // namespace

void set_apart_unsplit(RecordingAccount& recording) {
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
