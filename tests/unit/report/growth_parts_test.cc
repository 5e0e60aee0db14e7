// What the growth of a process is made of: what imports made, code of libraries, and the rest, in the head line and in
// verdicts of their own.
#include "report/verdicts/growth_parts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "literal_accounts.h"
#include "report/render/text.h"
#include "report/view/blame.h"
#include "report/view/build_view.h"
#include "report/wording/format.h"
#include "verdicts_of.h"

namespace whyrss::growth_parts_test {
namespace {

using literal::kMiB;
using literal::Part;

// Python frames, the innermost first.
StackId stack_of(StackTable& stacks, const std::vector<std::pair<std::string, int>>& lines) {
  std::vector<FrameId> frames;
  for (const auto& [file, line] : lines)
    frames.push_back(stacks.intern(Frame{.kind = FrameKind::python, .function = "f", .file = file, .line = line}));
  return stacks.intern(frames);
}

const std::string kTorch = "/usr/lib/python3/dist-packages/torch/__init__.py";
const std::string kNumpy = "/usr/lib/python3/dist-packages/numpy/__init__.py";
const std::string kImporter = "<frozen importlib._bootstrap>";

struct Job {
  StackTable stacks{};
  StackId torch = stack_of(stacks, {{kTorch, 7}, {kImporter, 200}, {"/home/u/job.py", 1}});
  StackId numpy =
      stack_of(stacks, {{kNumpy, 7}, {kImporter, 200}, {kTorch, 3}, {kImporter, 200}, {"/home/u/job.py", 1}});
  StackId kept = stack_of(stacks, {{"/home/u/job.py", 10}});
  // A module of the program builds a table while it is imported.
  StackId table = stack_of(stacks, {{"/home/u/tables.py", 3}, {kImporter, 200}, {"/home/u/job.py", 2}});

  RecordingAccount recording(const std::vector<Part>& parts) {
    RecordingAccount recording;
    recording.info = literal::finished({"/usr/bin/python3", "job.py"}, 2);
    recording.stacks = stacks;
    ProcessAccount process = literal::python_process(7, recording.info.command);
    process.ended_s = 2;
    process.accounts.push_back(literal::walk(1, parts));
    recording.processes.push_back(process);
    return recording;
  }
};

TEST(GrowthParts, WhatAnImportMadeIsNoLineOfTheProgram) {
  Job job;
  EXPECT_NE(imported_frame(job.stacks, job.torch), nullptr);
  EXPECT_EQ(imported_frame(job.stacks, job.torch)->file, kTorch);
  EXPECT_EQ(imported_frame(job.stacks, job.numpy)->file, kTorch);
  EXPECT_EQ(imported_frame(job.stacks, job.kept), nullptr);
  EXPECT_EQ(imported_frame(job.stacks, job.table), nullptr);
  EXPECT_EQ(imported_frame(job.stacks, stack_of(job.stacks, {{kImporter, 3}, {"/home/u/job.py", 1}}))->file, kImporter);
  EXPECT_EQ(
      headlines(job.recording({{Cause::heap_live, 110, job.torch},
                               {Cause::heap_live, 20, job.numpy},
                               {Cause::file_cow, 15, job.torch},
                               {Cause::heap_live, 94, job.kept},
                               {Cause::file_cache, 51, kEmptyStack, "/usr/lib/libtorch.so.2"},
                               {Cause::file_cache, 12, kEmptyStack, "/usr/lib/libc.so.6"},
                               {Cause::file_cache, 3, kEmptyStack, "/usr/bin/python3.11"}})),
      "heap-growth info: 94 MiB live Python objects (made at job.py:10 in f)\n"
      "imports ok: 145 MiB by imports of torch\n"
      "library-code ok: 66 MiB code of 3 libraries, most of it libtorch.so.2 (51 MiB): reclaimable, not a leak\n");
}

TEST(GrowthParts, TheTableOfAModuleOfTheProgramIsItsOwn) {
  Job job;
  EXPECT_EQ(headlines(job.recording({{Cause::heap_live, 60, job.table}})),
            "heap-growth info: 60 MiB live Python objects (made at tables.py:3 in f)\n");
}

// No call of the program maps the data of a library: who touched it is known.
TEST(GrowthParts, TheDataOfALibraryIsOfWhatTouchedIt) {
  Job job;
  const std::string library = "/usr/lib/libcublasLt.so.13";
  RecordingAccount recording = job.recording({{Cause::anonymous, 97, kEmptyStack, library},
                                              {Cause::file_cow, 22, kEmptyStack, library},
                                              {Cause::heap_live, 100, job.kept}});
  const auto touched_by = [&](StackId stack) {
    RecordingAccount touched = recording;
    for (Slice& slice : touched.processes.front().accounts.front().slices.open())
      if (slice.site.stack == kEmptyStack) slice.touched = {{stack, slice.bytes - kMiB}};
    return headlines(touched);
  };
  EXPECT_EQ(touched_by(job.torch),
            "heap-growth info: 100 MiB live Python objects (made at job.py:10 in f)\n"
            "imports ok: 119 MiB by imports of torch\n");
  EXPECT_EQ(touched_by(job.kept).find("by imports"), std::string::npos) << touched_by(job.kept);
  EXPECT_EQ(headlines(recording).find("by imports"), std::string::npos);
}

// The arena of an allocator that a library reserves as it is loaded.
TEST(GrowthParts, WhatAnImportMappedIsOfTheCodeThatFilledIt) {
  Job job;
  RecordingAccount recording = job.recording({{Cause::anonymous, 97, job.torch}});
  const auto filled_by = [&](StackId stack) {
    RecordingAccount filled = recording;
    for (Slice& slice : filled.processes.front().accounts.front().slices.open())
      if (slice.site.stack == job.torch) slice.touched = {{stack, 60 * kMiB}};
    return headlines(filled);
  };
  EXPECT_EQ(filled_by(job.torch), "imports ok: 97 MiB by imports of torch\n");
  EXPECT_EQ(filled_by(kEmptyStack), "imports ok: 97 MiB by imports of torch\n");
  EXPECT_EQ(filled_by(job.kept).find("by imports"), std::string::npos) << filled_by(job.kept);
}

TEST(GrowthParts, APackageHasOneNameWhicheverOfItsModulesWasImported) {
  Job job;
  const StackId utils = stack_of(
      job.stacks, {{"/usr/lib/python3/dist-packages/celery/utils/__init__.py", 7}, {kImporter, 200}, {kNumpy, 3}});
  const StackId app = stack_of(
      job.stacks, {{"/usr/lib/python3/dist-packages/celery/app.py", 7}, {kImporter, 200}, {"/home/u/job.py", 4}});
  EXPECT_EQ(headlines(job.recording({{Cause::heap_live, 30, utils}, {Cause::heap_live, 40, app}})),
            "imports ok: 70 MiB by imports of celery\n");
}

TEST(GrowthParts, TheHeadLineAddsUp) {
  Job job;
  const RecordingAccount recording = job.recording({{Cause::heap_live, 531, job.kept},
                                                    {Cause::heap_live, 58, job.torch},
                                                    {Cause::file_cache, 72, kEmptyStack, "/usr/lib/libtorch.so.2"}});
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(growth_parts_text(recording.stacks, view.processes.front()), " = 531 live + 72 library code + 58 imports");
  EXPECT_NE(render_short(view, find_verdicts(view), {}).find("RSS +661 MiB in 2.0 s = 531 live + 72 library code + 58"),
            std::string::npos);
}

// However the whole is rounded.
TEST(GrowthParts, WhatLibrariesAreComesLast) {
  Job job;
  const std::string library = "/usr/lib/libtorch.so.2";
  const RecordingAccount recording = job.recording({{Cause::file_cow, 20, kEmptyStack, library},
                                                    {Cause::file_cow, 30, job.torch, library},
                                                    {Cause::file_cow, 10, job.kept, "/home/u/table.bin"},
                                                    {Cause::file_cache, 40, kEmptyStack, library}});
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(growth_parts_text(recording.stacks, view.processes.front()),
            " = 10 private file pages + 40 library code + 30 imports + 20 library data");
}

TEST(GrowthParts, TheyAddUpToTheFigureThatIsShown) {
  for (int more_kib = 0; more_kib < 1024; more_kib += 64) {
    Job job;
    RecordingAccount recording = job.recording({{Cause::heap_live, 101, job.kept}, {Cause::anonymous, 15, job.kept}});
    Account& account = recording.processes.front().accounts.front();
    account.slices.open().front().bytes += more_kib * 1024;
    account.rss_bytes += more_kib * 1024;
    const View view = build_view(recording, whole_life(recording));
    const std::string text = growth_parts_text(recording.stacks, view.processes.front());
    const int shown = std::stoi(size_text(view.processes.front().rss.growth()));
    EXPECT_EQ(text, fmt::format(" = {} live + 15 mapped", shown - 15));
  }
}

TEST(GrowthParts, WhatIsSmallIsSummed) {
  Job job;
  const RecordingAccount recording = job.recording({{Cause::heap_live, 900, job.kept},
                                                    {Cause::stack, 8, kEmptyStack, "[stack]"},
                                                    {Cause::whyrss, 7, kEmptyStack, "[anon: whyrss]"}});
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(growth_parts_text(recording.stacks, view.processes.front()), " = 900 live + 15 other");
}

// Small parts are no rounding: no other part grows by them.
TEST(GrowthParts, NoPartIsLargerThanItIs) {
  Job job;
  const RecordingAccount recording = job.recording({{Cause::heap_retained, 12, job.kept},
                                                    {Cause::file_cache, 10, kEmptyStack, "/usr/lib/libc.so.6"},
                                                    {Cause::heap_live, 8, job.torch},
                                                    {Cause::whyrss, 3, kEmptyStack, "[anon: whyrss]"}});
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(growth_parts_text(recording.stacks, view.processes.front()),
            " = 12 freed but kept + 10 library code + 8 imports + 3 other");
}

TEST(GrowthParts, WhatFellHasItsSign) {
  Job job;
  RecordingAccount recording = job.recording({{Cause::heap_live, 10, job.kept}, {Cause::anonymous, 50, job.kept}});
  recording.processes.front().accounts.push_back(
      literal::walk(1.5, {{Cause::heap_live, 130, job.kept}, {Cause::anonymous, 20, job.kept}}));
  const View view = build_view(recording, {.from_s = 1, .to_s = 2});
  EXPECT_EQ(growth_parts_text(recording.stacks, view.processes.front()), " = 120 live - 30 mapped");
}

// Its tables for some hundred threads are more than a user takes for "other".
TEST(GrowthParts, WhyrssItselfIsNamedWhereItIsMuch) {
  Job job;
  const auto parts_text = [&](std::int64_t ours) {
    const RecordingAccount recording = job.recording({{Cause::heap_live, 30, job.kept}, {Cause::whyrss, ours}});
    const View view = build_view(recording, whole_life(recording));
    return growth_parts_text(recording.stacks, view.processes.front());
  };
  EXPECT_EQ(parts_text(28), " = 30 live + 28 whyrss");
  EXPECT_EQ(parts_text(3), " = 30 live + 3 other");
}

}  // namespace
}  // namespace whyrss::growth_parts_test
