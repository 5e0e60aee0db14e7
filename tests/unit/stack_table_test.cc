// Frames and stacks are numbered once, whatever they are made of.
#include "model/stack_table.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace whyrss {
namespace {

TEST(StackTable, NumbersWhatIsTheSameOnce) {
  StackTable table;
  const Frame frame{.kind = FrameKind::python, .function = "load", .file = "/job.py", .line = 7};
  const FrameId id = table.intern(frame);
  EXPECT_EQ(table.intern(frame), id);
  EXPECT_EQ(table[id], frame);
  const std::vector<FrameId> stack{id, table.intern(Frame{.function = "main", .file = {}})};
  EXPECT_EQ(table.intern(stack), table.intern(std::vector(stack)));
  EXPECT_EQ(table[table.intern(stack)], stack);
  EXPECT_EQ(table.intern(std::vector<FrameId>{}), kEmptyStack);
  EXPECT_EQ(table.intern(Module{"/lib/a.so", "b"}), table.intern(Module{"/lib/a.so", "b"}));
}

TEST(StackTable, TellsFramesApartByEachOfTheirParts) {
  StackTable table;
  const Frame frame{.kind = FrameKind::python, .function = "load", .file = "/job.py", .line = 7};
  std::vector<Frame> frames(9, frame);
  frames[1].kind = FrameKind::native;
  frames[2].function = "store";
  frames[3].file = "/other.py";
  frames[4].line = 8;
  frames[5].end_line = 9;
  frames[6].column = 3;
  frames[7].module = ModuleId{1};
  frames[8].address = 0x40;
  std::set<FrameId> ids;
  for (const Frame& one : frames) ids.insert(table.intern(one));
  EXPECT_EQ(ids.size(), frames.size());
}

TEST(StackTable, TellsStacksApartByTheirOrder) {
  StackTable table;
  const FrameId a = table.intern(Frame{.function = "a", .file = {}}),
                b = table.intern(Frame{.function = "b", .file = {}});
  const std::set<StackId> ids{table.intern(std::vector{a, b}), table.intern(std::vector{b, a}),
                              table.intern(std::vector{a})};
  EXPECT_EQ(ids.size(), 3U);
}

}  // namespace
}  // namespace whyrss
