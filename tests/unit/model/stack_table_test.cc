// Frames and stacks are numbered once, whatever they are made of.
#include "model/stack_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace whyrss::stack_table_test {
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

TEST(StackTable, StacksThatShareCallersStayThemselves) {
  StackTable table;
  std::vector<FrameId> frames;
  for (int i = 0; i < 6; ++i) frames.push_back(table.intern(Frame{.function = "f", .file = {}, .line = i}));
  std::vector<std::vector<FrameId>> stacks;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    std::vector<FrameId>& stack = stacks.emplace_back();
    for (std::uint32_t rest = i + 1; rest > 0; rest /= 6) stack.push_back(frames[rest % 6]);
  }
  std::vector<StackId> ids;
  for (const auto& stack : stacks) ids.push_back(table.intern(stack));
  EXPECT_EQ(table.stack_count(), stacks.size() + 1);
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    EXPECT_EQ(table[ids[i]], stacks[i]);
    EXPECT_EQ(table.intern(stacks[i]), ids[i]);
  }
}

TEST(StackTable, InlinedCallsBecomeFramesOfEachStack) {
  StackTable table;
  const FrameId inner = table.intern(Frame{.function = {}, .file = {}, .address = 1}),
                outer = table.intern(Frame{.function = {}, .file = {}, .address = 2});
  const StackId both = table.intern(std::vector{inner, outer}), twice = table.intern(std::vector{outer, outer, inner}),
                alone = table.intern(std::vector{outer});
  table.set_names(
      {{outer, {{.function = "a", .file = {}}, {.function = "b", .file = {}}, {.function = "c", .file = {}}}},
       {inner, {{.function = "in", .file = {}}}}});
  const auto functions = [&](StackId id) {
    std::string names;
    for (const FrameId frame : table[id]) names += table[frame].function + (table[frame].inlined ? "' " : " ");
    return names;
  };
  EXPECT_EQ(functions(both), "in a' b' c ");
  EXPECT_EQ(functions(twice), "a' b' c a' b' c in ");
  EXPECT_EQ(functions(alone), "a' b' c ");
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
}  // namespace whyrss::stack_table_test
