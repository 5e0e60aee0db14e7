// The stacks of the page of `whyrss diff`: which frames of A and B are the same, and what each stack has in both.
#include "report/diff/diff_stacks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "literal_accounts.h"
#include "report/view/build_view.h"
#include "report/view/interval.h"
#include "support/text.h"

namespace whyrss::diff_stacks_test {
namespace {

using literal::kMiB;
using literal::Part;
using Files = std::vector<std::pair<std::string, std::string>>;
using Names = std::vector<std::string>;

// A call of `function` at `line` of `file`, from line 1 of its module.
struct Call {
  Cause cause;
  std::int64_t mib;
  std::string file, function;  // no function: memory of the mapping `file`
  int line = 0;
};

StackId stack_of(StackTable& stacks, const Call& call) {
  if (call.function.empty()) return kEmptyStack;
  const Frame inner{.kind = FrameKind::python, .function = call.function, .file = call.file, .line = call.line};
  const Frame outer{.kind = FrameKind::python, .function = "<module>", .file = call.file, .line = 1};
  return stacks.intern({stacks.intern(inner), stacks.intern(outer)});
}

RecordingAccount recording_of(const std::vector<Call>& calls) {
  RecordingAccount recording;
  recording.info = literal::finished({"/usr/bin/python", "a.py"}, 1);
  ProcessAccount process = literal::python_process(77, recording.info.command);
  process.ended_s = 1;
  std::vector<Part> parts;
  for (const Call& call : calls)
    parts.push_back({call.cause, call.mib, stack_of(recording.stacks, call), call.function.empty() ? call.file : ""});
  process.accounts.push_back(literal::walk(0.9, parts));
  recording.processes.push_back(process);
  return recording;
}

// "cause outer > inner@A>B bytes", of each stack.
Names stacks_of(const std::vector<Call>& a, const std::vector<Call>& b) {
  const RecordingAccount of_a = recording_of(a), of_b = recording_of(b);
  const View view_a = build_view(of_a, whole_life(of_a)), view_b = build_view(of_b, whole_life(of_b));
  const DiffStacks found = diff_stacks(view_a, view_b, SiteFigure::growth);
  Names names;
  for (const DiffStack& stack : found.stacks) {
    Names frames;
    for (const std::size_t number : stack.frames) {
      const DiffFrame& frame = found.frames.at(number);
      frames.push_back(fmt::format("{}@{}>{}", frame.label, frame.line_a, frame.line_b));
    }
    names.push_back(fmt::format("{} {} {}>{}", info(stack.cause).slug, join(frames, " "), stack.figure.a / kMiB,
                                stack.figure.b / kMiB));
  }
  std::ranges::sort(names);
  return names;
}

TEST(DiffStacks, FramesAreFoundAgainWhereTheyHaveMoved) {
  EXPECT_EQ(stacks_of({{Cause::heap_live, 10, "/a.py", "load", 5}, {Cause::heap_live, 3, "/a.py", "old", 9}},
                      {{Cause::heap_live, 30, "/a.py", "load", 8}, {Cause::heap_live, 4, "/a.py", "extra", 9}}),
            (Names{"heap_live a.py:1 in <module>@1>1 a.py:8 in load@5>8 10>30",
                   "heap_live a.py:1 in <module>@1>1 a.py:9 in extra@0>9 0>4",
                   "heap_live a.py:1 in <module>@1>1 a.py:9 in old@9>0 3>0"}));
}

TEST(DiffStacks, ACheckoutElsewhereIsTheSameProgram) {
  EXPECT_EQ(stacks_of({{Cause::heap_live, 10, "/old/pkg/x/__init__.py", "load", 5},
                       {Cause::heap_live, 20, "/old/pkg/y/__init__.py", "load", 5}},
                      {{Cause::heap_live, 21, "/new/pkg/y/__init__.py", "load", 5},
                       {Cause::heap_live, 15, "/new/pkg/x/__init__.py", "load", 5}}),
            (Names{"heap_live __init__.py:1 in <module>@1>1 __init__.py:5 in load@5>5 10>15",
                   "heap_live __init__.py:1 in <module>@1>1 __init__.py:5 in load@5>5 20>21"}));
}

TEST(DiffStacks, OfMappingsTheNameCountsAndOursHasNone) {
  EXPECT_EQ(stacks_of({{Cause::file_cache, 5, "/lib/libc.so", ""}, {Cause::whyrss, 3, "/dev/shm/a", ""}},
                      {{Cause::file_cache, 6, "/lib/libc.so", ""}, {Cause::whyrss, 3, "/dev/shm/b", ""}}),
            (Names{"file_cache libc.so@0>0 5>6", "whyrss  3>3"}));
}

TEST(DiffStacks, FilesArePairedByNameThenByPath) {
  EXPECT_EQ(pair_files({"/a/x.py", "/b/x.py"}, {"/b/x.py", "/c/x.py"}),
            (Files{{"/b/x.py", "/b/x.py"}, {"/a/x.py", "/c/x.py"}}));
  EXPECT_EQ(pair_files({"/old/p/x.py", "/old/q/x.py"}, {"/new/q/x.py", "/new/p/x.py"}).size(), 2U);
  EXPECT_EQ(pair_files({"/old/p/x.py"}, {"/new/q/x.py", "/new/p/x.py"}), (Files{{"/old/p/x.py", "/new/p/x.py"}}));
  EXPECT_EQ(pair_files({"/a/x.py"}, {"/a/y.py"}), Files{});
  EXPECT_EQ(pair_files({""}, {"/"}), Files{});
}

}  // namespace
}  // namespace whyrss::diff_stacks_test
