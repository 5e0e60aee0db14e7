// The rules: what they say, when they stay silent, and which line they blame.
#include "report/verdicts/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "literal_accounts.h"
#include "model/collector_frame.h"
#include "report/render/text.h"
#include "report/view/blame.h"
#include "report/view/build_view.h"
#include "verdicts_of.h"

namespace whyrss::verdict_test {
namespace {

using literal::kMiB;
using literal::Part;

// One process that holds `parts` at its end. Stacks must be interned in `stacks` before.
RecordingAccount holding(StackTable stacks, const std::vector<Part>& parts, bool python = true) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, 2);
  recording.stacks = std::move(stacks);
  ProcessAccount process = literal::python_process(10, {"prog"});
  if (!python) process.python.reset();
  process.accounts.push_back(literal::walk(1, parts));
  recording.processes.push_back(process);
  return recording;
}

TEST(Verdict, Quickstart) {
  EXPECT_EQ(headlines(literal::quickstart()),
            "file-cache-growth ok: 512 MiB file cache of big.txt (mapped at quickstart.py:18 in load): reclaimable, "
            "not a leak\n"
            "fork-cow-refcount warning: 2 workers copied 124 MiB each of what they inherited (fork COW; objects made "
            "at quickstart.py:24)\n"
            "heap-growth info: 130 MiB live Python objects (made at quickstart.py:24 in load)\n");
}

// 120 buffers of 3 MiB that 120 views keep, found at 1 s.
RecordingAccount holding_views(StackId (*viewed_at)(StackTable&)) {
  StackTable stacks;
  const StackId made = literal::python_stack(stacks, "/home/u/view.py", 15, "batch");
  const StackId viewed = viewed_at(stacks);
  RecordingAccount recording = holding(stacks, {{Cause::heap_live, 360, made}});
  ProcessAccount& process = recording.processes.front();
  process.view_walks_s = {1};
  process.retained_views = {{.time_s = 1,
                             .made_at = made,
                             .viewed_at = viewed,
                             .buffer_count = 120,
                             .buffer_bytes = 360 * kMiB,
                             .view_count = 120,
                             .view_bytes = 120 * 256}};
  return recording;
}

// 50 segments of 1 MiB, mapped at one line.
RecordingAccount holding_segments(std::int64_t descriptors_last) {
  StackTable stacks;
  const StackId mapped = literal::python_stack(stacks, "/home/u/loader.py", 9, "batch");
  std::vector<Part> parts;
  for (int i = 0; i < 50; ++i)
    parts.push_back({Cause::shared_memory, 1, mapped, "/dev/shm/torch_" + std::to_string(i)});
  RecordingAccount recording = holding(stacks, parts);
  recording.processes.front().counters = {{"descriptors_first", 5}, {"descriptors_last", descriptors_last}};
  return recording;
}

TEST(Verdict, DescriptorGrowth) {
  const auto of = [](const RecordingAccount& recording, Interval interval) {
    std::string reported;
    for (const Verdict& verdict : find_verdicts(build_view(recording, interval)))
      if (verdict.id == "descriptor-growth") reported += verdict.headline;
    return reported;
  };
  const auto many = holding_segments(105);
  EXPECT_EQ(of(many, whole_life(many)),
            "105 files are open, 100 of them since its start; 50 mapped at loader.py:9 in batch hold 50 MiB");
  EXPECT_EQ(of(many, {1.5, 2}), "");  // nobody counted at its beginning
  const auto few = holding_segments(60);
  EXPECT_EQ(of(few, whole_life(few)), "");
  auto sockets = holding_segments(2005);
  EXPECT_EQ(of(sockets, whole_life(sockets)), "2005 files are open, 2000 of them since its start");
  const auto severity = [](const RecordingAccount& recording) {
    for (const Verdict& verdict : find_verdicts(build_view(recording, whole_life(recording))))
      if (verdict.id == "descriptor-growth") return verdict.severity;
    return Severity::ok;
  };
  EXPECT_EQ(severity(sockets), Severity::warning);
  EXPECT_EQ(severity(many), Severity::warning);                // its mappings hold them
  EXPECT_EQ(severity(holding_segments(401)), Severity::info);  // a server may work with as many at a time
  sockets.processes.front().ended_s = 5;
  sockets.processes.front().counters["descriptors_last_ms"] = 4500;
  EXPECT_EQ(of(sockets, whole_life(sockets)), "2005 files are open, 2000 of them since its start");
  sockets.processes.front().counters["descriptors_last_ms"] = 1250;  // and killed later
  EXPECT_EQ(of(sockets, whole_life(sockets)), "2005 files were open at 1.2 s, 2000 of them since its start");
  sockets.processes.front().counters.erase("descriptors_last");  // counted once only
  EXPECT_EQ(of(sockets, whole_life(sockets)), "");
}

TEST(Verdict, RetainedView) {
  const auto known =
      holding_views([](StackTable& stacks) { return literal::python_stack(stacks, "/home/u/view.py", 22, "main"); });
  const auto verdicts = verdicts_of(known);
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].id, "retained-view");
  EXPECT_EQ(verdicts[0].headline,
            "360 MiB in 120 buffers (made at view.py:15 in batch) are kept only by views of 30 KiB in all (taken "
            "at view.py:22 in main)");
  EXPECT_EQ(verdicts[0].evidence["buffer_count"], 120);
  const auto unknown = verdicts_of(holding_views([](StackTable&) { return kEmptyStack; }));
  EXPECT_NE(unknown[0].why.find("--mode exact"), std::string::npos);
}

TEST(Verdict, RetainedViewsThatAreGone) {
  auto recording = holding_views([](StackTable&) { return kEmptyStack; });
  recording.processes.front().view_walks_s.push_back(2);  // searched again, and found none
  EXPECT_NE(headlines(recording).find(
                "360 MiB in 120 buffers (made at view.py:15 in batch) were at 1.0 s kept only by views"),
            std::string::npos);
  const auto later = find_verdicts(build_view(recording, {.from_s = 1.5, .to_s = 2}));
  for (const Verdict& verdict : later) EXPECT_NE(verdict.id, "retained-view");
}

TEST(Verdict, RetainedViewsOfAnEarlierWalkSayWhen) {
  auto recording = holding_views([](StackTable&) { return kEmptyStack; });
  ProcessAccount& process = recording.processes.front();
  Account later = process.accounts.back();
  later.time_s = 1.5;  // walked, and no view was searched for
  process.accounts.push_back(later);
  EXPECT_NE(headlines(recording).find("were at 1.0 s kept only by views"), std::string::npos) << headlines(recording);
}

TEST(Verdict, NumbersStandInTheEvidence) {
  const auto verdicts = verdicts_of(literal::quickstart());
  ASSERT_EQ(verdicts.size(), 3U);
  EXPECT_EQ(verdicts[0].bytes, 512 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["growth_bytes"], 517 * kMiB);
  EXPECT_EQ(verdicts[1].pid, 4711);
  EXPECT_EQ(verdicts[1].bytes, 248 * kMiB);
  EXPECT_EQ(verdicts[1].evidence["workers"][1]["pid"], 4713);
  EXPECT_EQ(verdicts[1].evidence["workers"][1]["copied_bytes"], 124 * kMiB);
  EXPECT_EQ(verdicts[1].evidence["allocated_at"][0]["file"], "/home/u/quickstart.py");
  for (const Verdict& verdict : verdicts) {
    EXPECT_FALSE(verdict.why.empty());
    EXPECT_FALSE(verdict.advice.empty());
  }
}

TEST(Verdict, NothingGrew) {
  EXPECT_EQ(headlines(literal::quiet()),
            "steady ok: nothing grew worth naming (largest growth of a process: 7.0 MiB)\n");
}

// The line above it says how much RSS grew.
TEST(Verdict, WhatGrewBesidesTheProgramsOwn) {
  RecordingAccount recording = literal::quiet();
  recording.processes[0].accounts = {
      literal::walk(0.1, {{Cause::heap_live, 2}}),
      literal::walk(0.4, {{Cause::heap_live, 3}, {Cause::whyrss, 4}, {Cause::fork_shared, 20, kEmptyStack, "", 0}})};
  EXPECT_EQ(headlines(recording),
            "steady ok: nothing grew worth naming (largest growth of a process: 3.0 MiB, besides 4.0 MiB of whyrss and "
            "20 MiB inherited)\n");
}

TEST(Verdict, LessThanAtTheBeginningIsNoGrowth) {
  RecordingAccount recording = literal::quiet();
  recording.processes[0].accounts = {literal::walk(0.1, {{Cause::heap_live, 80}}),
                                     literal::walk(0.3, {{Cause::heap_live, 40}})};
  const auto verdicts = find_verdicts(build_view(recording, {.from_s = 0.2, .to_s = 0.4}));
  EXPECT_EQ(verdicts.front().headline, "nothing grew: 40 MiB less than at the beginning");
  const std::string text = render_short(build_view(recording, {.from_s = 0.2, .to_s = 0.4}), verdicts, {});
  EXPECT_EQ(text.find("at its end"), std::string::npos) << text;  // it went on
}

TEST(Verdict, NothingSeenIsNotSteady) {
  RecordingAccount recording = literal::quiet();
  recording.processes[0].accounts.clear();
  EXPECT_EQ(verdicts_of(recording).front().id, "not-seen");
  recording.processes.clear();
  EXPECT_EQ(verdicts_of(recording).front().id, "not-seen");
}

TEST(Verdict, NobodyWalkedIsNotSteady) {
  const RecordingAccount recording = literal::quiet();
  const double last_s = recording.processes[0].accounts.back().time_s;
  const View view = build_view(recording, {.from_s = last_s + 1, .to_s = last_s + 2});
  EXPECT_EQ(find_verdicts(view).front().id, "not-seen");
}

TEST(Verdict, AdviceInANotebookCanBeFollowedThere) {
  RecordingAccount recording = literal::quiet();
  recording.info.complete = false;
  recording.info.incomplete_why = "the collector was killed";
  recording.info.duration_s = 0.5;
  const auto advice = [&](Interval interval) {
    View view = build_view(recording, interval);
    view.in_notebook = true;
    return find_verdicts(view).front().advice;
  };
  EXPECT_NE(advice({.to_s = 9}).find("Run the cell again."), std::string::npos);
  EXPECT_EQ(advice({.to_s = 0.45}), "Nothing to do.");  // what came after does not matter to it
  recording.info.incomplete_why = "still running";
  EXPECT_NE(advice({.to_s = 9}).find("A later report of it says more."), std::string::npos);
}

TEST(Verdict, SmallShareOfALargeGrowthIsNotNamed) {
  EXPECT_EQ(headlines(holding({}, {{Cause::anonymous, 1000}, {Cause::heap_live, 40}})),
            "cause-growth info: 1000 MiB anonymous mappings\n");
}

TEST(Verdict, StaticDataIsNamedByItsImageAndWhoFirstUsedIt) {
  RecordingAccount recording = holding({}, {{Cause::anonymous, 300, kEmptyStack, "/opt/grid"}});
  EXPECT_EQ(headlines(recording), "cause-growth info: 300 MiB static data of grid\n");
  const StackId filled = literal::native_stack(recording.stacks, {{"fill", "/opt/grid"}});
  recording.processes[0].accounts.back().slices.open()[0].touched = {{.stack = filled, .bytes = 290 * kMiB}};
  EXPECT_EQ(headlines(recording), "cause-growth info: 300 MiB static data of grid (touched in fill (grid))\n");
  EXPECT_EQ(headlines(holding({}, {{Cause::anonymous, 60, kEmptyStack, "/opt/grid"}, {Cause::anonymous, 100}})),
            "cause-growth info: 160 MiB anonymous mappings; 60 MiB of it static data of grid\n");

  recording.processes[0].accounts.back().slices.open()[0].site.cause = Cause::file_cow;  // with initial values
  EXPECT_EQ(headlines(recording), "cause-growth info: 300 MiB static data of grid (written in fill (grid))\n");
}

TEST(Verdict, RelocatedPagesThatAForkChildSharesAreNotItsOwn) {
  RecordingAccount recording = holding({}, {{Cause::file_cow, 20, kEmptyStack, "/lib/libtorch.so", 1}});
  EXPECT_EQ(verdicts_of(recording).front().id, "cause-growth");
  recording.processes[0].born_by_fork = true;
  EXPECT_EQ(verdicts_of(recording).front().id, "steady");
}

TEST(Verdict, ManyFiles) {
  EXPECT_EQ(headlines(holding({}, {{Cause::file_cache, 80, kEmptyStack, "/data/torch.bin"},
                                   {Cause::file_cache, 30, kEmptyStack, "/data/a.bin"},
                                   {Cause::file_cache, 20, kEmptyStack, "/data/b.bin"}})),
            "file-cache-growth ok: 130 MiB file cache of 3 files, most of it torch.bin (80 MiB): reclaimable, not a "
            "leak\n");
  EXPECT_EQ(headlines(holding({}, {{Cause::file_cache, 40, kEmptyStack, "/data/torch.bin"},
                                   {Cause::file_cache, 30, kEmptyStack, "/data/a.bin"},
                                   {Cause::file_cache, 20, kEmptyStack, "/data/b.bin"}})),
            "file-cache-growth ok: 90 MiB file cache of 3 files, the largest torch.bin (40 MiB): reclaimable, not a "
            "leak\n");
}

TEST(Verdict, NativeHeapNamesTheCaller) {
  StackTable stacks;
  const StackId stack = literal::native_stack(stacks, {{"malloc", "/opt/libjemalloc.so.2"},
                                                       {"operator new(unsigned long)", "/usr/lib/libstdc++.so.6"},
                                                       {"Parser::grow()", "/opt/prog"},
                                                       {"main", "/opt/prog"}});
  EXPECT_EQ(headlines(holding(stacks, {{Cause::heap_live, 50, stack}}, false)),
            "heap-growth info: 50 MiB live heap (allocated in Parser::grow() (prog))\n");
}

TEST(Verdict, BuffersOfLibrariesAreNoPythonObjects) {
  StackTable stacks;
  const StackId stack = literal::python_stack(stacks, "/home/u/a.py", 3, "f", "/x/numpy/core/_multiarray.so");
  EXPECT_EQ(headlines(holding(stacks, {{Cause::heap_live, 50, stack}})),
            "heap-growth info: 50 MiB live heap (allocated at a.py:3 in f)\n");
}

TEST(Verdict, GrowthThatNobodyWasSeenToCause) {
  EXPECT_EQ(headlines(holding({}, {{Cause::heap_live, 50, kEmptyStack, "[heap]"}, {Cause::unknown, 20}})),
            "heap-growth info: 50 MiB live heap (no line was recorded)\n"
            "cause-growth info: 20 MiB that no recorded call explains\n");
}

TEST(Verdict, SmallKnownPartIsNotBlamedForTheRest) {
  StackTable stacks;
  const StackId stack = literal::python_stack(stacks, "/home/u/a.py", 3, "f");
  EXPECT_EQ(headlines(holding(stacks, {{Cause::heap_live, 2, stack}, {Cause::heap_live, 48, kEmptyStack, "[heap]"}})),
            "heap-growth info: 50 MiB live heap (most of it has no recorded line)\n");
}

TEST(Verdict, FreedBeforeTheEnd) {
  StackTable stacks;
  const StackId stack = literal::python_stack(stacks, "/home/u/a.py", 3, "f");
  RecordingAccount recording = holding(stacks, {{Cause::heap_live, 50, stack}, {Cause::file_cache, 5}});
  recording.processes[0].accounts.push_back(literal::walk(1.9, {{Cause::heap_live, 2, stack}, {Cause::file_cache, 5}}));
  EXPECT_EQ(headlines(recording),
            "gone-since-peak info: 48 MiB live Python objects gone since the peak of 55 MiB RSS (made at "
            "a.py:3 in f)\n");
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_EQ(verdict.evidence["at_peak_bytes"], 50 * kMiB);
  EXPECT_EQ(verdict.bytes, 48 * kMiB);
}

TEST(Verdict, SpreadOverLines) {
  StackTable stacks;
  const StackId a = literal::python_stack(stacks, "/home/u/a.py", 3, "f");
  const StackId b = literal::python_stack(stacks, "/home/u/a.py", 9, "g");
  EXPECT_EQ(headlines(holding(stacks, {{Cause::heap_live, 30, a}, {Cause::heap_live, 20, b}})),
            "heap-growth info: 50 MiB live Python objects (most made at a.py:3 in f: 30 MiB, 20 MiB at a.py:9 in g)\n");
}

// What a poll alone saw at the peak, and what other causes have more of at the end, is not gone.
TEST(Verdict, WhatWasSeenLaterHasNotGone) {
  const auto unseen = [](std::int64_t file_mib, std::int64_t slack_mib) {
    RecordingAccount recording =
        holding({}, {{Cause::heap_live, 50}, {Cause::file_cache, 5}, {Cause::not_looked_at, 14}});
    recording.processes[0].accounts.push_back(
        literal::walk(1.9, {{Cause::heap_live, 20}, {Cause::file_cache, file_mib}, {Cause::heap_slack, slack_mib}}));
    const auto verdicts = verdicts_of(recording);
    for (const Verdict& verdict : verdicts)
      if (verdict.headline.find("of unknown cause") != std::string::npos) return verdict.bytes;
    return std::int64_t{0};
  };
  EXPECT_EQ(unseen(5, 0), 14 * kMiB);
  EXPECT_EQ(unseen(9, 0), 10 * kMiB);
  EXPECT_EQ(unseen(18, 0), 0);
  EXPECT_EQ(unseen(5, 9), 14 * kMiB);  // of the heap that was seen
}

// Parent 10 and workers from 11 on, with these MiB of fork_cow each.
RecordingAccount workers(const std::vector<std::int64_t>& copied, const char* module, bool python) {
  StackTable stacks;
  const StackId made = literal::python_stack(stacks, "/home/u/a.py", 7, "build", module);
  RecordingAccount recording = holding(stacks, {{Cause::heap_live, 4}}, python);
  int pid = 11;
  for (const std::int64_t mib : copied) {
    ProcessAccount worker = literal::python_process(pid++, {"prog"});
    if (!python) worker.python.reset();
    worker.parent = 10;
    worker.born_by_fork = true;
    worker.accounts.push_back(literal::walk(1.5, {{Cause::fork_cow, mib, made}, {Cause::fork_shared, 9, made, "", 0}}));
    recording.processes.push_back(worker);
  }
  return recording;
}

TEST(ForkCow, UnequalWorkersAreReportedAsARange) {
  EXPECT_EQ(headlines(workers({60, 124, 100}, "/usr/bin/python3.11", true)),
            "fork-cow-refcount warning: 3 workers copied 60 MiB to 124 MiB each of what they inherited (fork COW; "
            "objects made at a.py:7)\n");
}

// Which of two processes copied a page is not always known.
TEST(ForkCow, DoubtfulCopiesMakeARange) {
  const auto copied_by = [](const std::vector<std::int64_t>& doubtful, const char* module) {
    RecordingAccount recording = workers(std::vector<std::int64_t>(doubtful.size(), 60), module, true);
    for (std::size_t i = 0; i < doubtful.size(); ++i)
      recording.processes[i + 1].sharing.push_back(
          {.time_s = 1.2, .copied_bytes = 60 * kMiB, .doubtful_bytes = doubtful[i] * kMiB, .estimate = true});
    return verdicts_of(recording).front();
  };
  const char* const python = "/usr/bin/python3.11";
  const auto text = [&](const std::vector<std::int64_t>& doubtful, const char* module) {
    const std::string headline = copied_by(doubtful, module).headline;
    return headline.substr(0, headline.find(" (likely"));
  };
  EXPECT_EQ(text({36}, python), "1 worker (pid 11) copied 24 MiB to 60 MiB of what it inherited");
  EXPECT_EQ(text({90}, python), "1 worker (pid 11) copied up to 60 MiB of what it inherited");
  EXPECT_EQ(text({2}, python), "1 worker (pid 11) copied 60 MiB of what it inherited");
  EXPECT_EQ(text({0, 36}, python), "2 workers copied 24 MiB to 60 MiB each of what they inherited");
  const Verdict verdict = copied_by({0, 36}, python);
  EXPECT_EQ(verdict.bytes, 120 * kMiB);
  EXPECT_EQ(verdict.evidence["workers"][1]["copied_at_least_bytes"], 24 * kMiB);
  const char* const numpy = "/x/numpy/core/_multiarray.so";
  EXPECT_EQ(text({36}, numpy), "1 worker (pid 11) copied 24 MiB to 60 MiB by writing to memory shared since fork");
}

TEST(ForkCow, WhatIsLeftNeedNotFollow) {
  RecordingAccount recording = workers({60}, "/usr/bin/python3.11", true);
  const auto why = [&] { return verdicts_of(recording).front().why; };
  EXPECT_EQ(why().find("It has not grown since"), std::string::npos) << why();
  ProcessAccount& worker = recording.processes[1];
  recording.info.duration_s = 20;
  const Account copied = worker.accounts.back();
  for (int second = 2; second < 9; ++second) {
    worker.accounts.push_back(copied);
    worker.accounts.back().time_s = second;
  }
  EXPECT_NE(why().find("It has not grown since "), std::string::npos) << why();
}

TEST(ForkCow, SmallCopiesAreNotNamed) {
  EXPECT_EQ(headlines(workers({60, 3}, "/usr/bin/python3.11", true)),
            "fork-cow-refcount warning: 1 worker (pid 11) copied 60 MiB of what it inherited (fork COW; objects made "
            "at a.py:7)\n");
}

TEST(ForkCow, OnlyPythonObjectsCopyByBeingRead) {
  for (const auto& recording :
       {workers({60}, "/x/numpy/core/_multiarray.so", true), workers({60}, "/usr/bin/python3.11", false)}) {
    const auto verdicts = verdicts_of(recording);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts[0].id, "fork-cow-write");
    EXPECT_EQ(verdicts[0].pid, 10);
    EXPECT_EQ(verdicts[0].headline, "1 worker (pid 11) copied 60 MiB by writing to memory shared since fork");
    EXPECT_EQ(verdicts[0].covered_pids, std::vector<int>{11});
    EXPECT_EQ(verdicts[0].evidence["left_to_copy_bytes"], 9 * kMiB);
    EXPECT_EQ(verdicts[0].evidence["bound_bytes"], 69 * kMiB);
    EXPECT_NE(verdicts[0].why.find("It stops when all is copied: at most 9.0 MiB are left."), std::string::npos)
        << verdicts[0].why;
  }
}

// What nobody else maps any more is written to without a copy.
TEST(ForkCow, PagesOfOnesOwnAreNotLeftToCopy) {
  RecordingAccount recording = workers({60}, "/x/numpy/core/_multiarray.so", true);
  for (Slice& slice : recording.processes[1].accounts[0].slices.open()) slice.exclusive_bytes = slice.bytes;
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].evidence["bound_bytes"], 60 * kMiB);
  EXPECT_NE(verdicts[0].why.find("nothing is left"), std::string::npos) << verdicts[0].why;
}

// A bytearray, a list's array: behind the head of a large block nothing is written by reading.
TEST(ForkCow, LargeBlocksOfTheInterpreterAreWritten) {
  RecordingAccount recording = workers({60}, "/usr/bin/python3.11", true);
  ProcessAccount& worker = recording.processes[1];
  const StackId made = worker.accounts[0].slices[0].site.stack;
  for (Slice& slice : worker.accounts[0].slices.open()) slice.site.in_large_block = true;
  worker.copies.push_back({1.5, made, kEmptyStack, 60 * kMiB, 0, true});
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "fork-cow-write");
  EXPECT_NE(verdicts[0].headline.find("(made at a.py:7)"), std::string::npos) << verdicts[0].headline;
}

// What workers copied, by lines of one file: who made it, who wrote to it.
void add_copies(RecordingAccount& recording, StackId made, StackId wrote, std::int64_t mib) {
  for (std::size_t i = 1; i < recording.processes.size(); ++i)
    recording.processes[i].copies.push_back({1.5, made, wrote, mib * kMiB});
}

TEST(ForkCow, NamesTheLineThatReadAndWhatIsLeft) {
  RecordingAccount recording = workers({60, 60}, "/usr/bin/python3.11", true);
  const StackId made = literal::python_stack(recording.stacks, "/home/u/a.py", 7, "build");
  const StackId read = literal::python_stack(recording.stacks, "/home/u/b.py", 35, "count");
  add_copies(recording, made, read, 50);
  add_copies(recording, made, kEmptyStack, 10);
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].headline,
            "2 workers copied 60 MiB each of what they inherited (fork COW; objects made at a.py:7, read at b.py:35)");
  EXPECT_EQ(verdicts[0].evidence["left_to_copy_bytes_per_worker"], 9 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["left_to_copy_bytes"], 18 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["bound_bytes"], 138 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["inherited_bytes_per_worker"], 69 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["written_at"][0]["growth_bytes"], 100 * kMiB);
}

StackId collecting(StackTable& stacks) {
  return under_collector(stacks, literal::python_stack(stacks, "/home/u/b.py", 35, "count"));
}

TEST(ForkCow, TheCollectorIsNoReader) {
  RecordingAccount recording = workers({60}, "/usr/bin/python3.11", true);
  const StackId made = literal::python_stack(recording.stacks, "/home/u/a.py", 7, "build");
  add_copies(recording, made, collecting(recording.stacks), 50);
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "fork-cow-collector");
  EXPECT_EQ(
      verdicts[0].headline,
      "1 worker (pid 11) copied 60 MiB of what it inherited (fork COW by the garbage collector at b.py:35; objects "
      "made at a.py:7)");
  EXPECT_NE(verdicts[0].advice.find("Call gc.freeze() in the parent"), std::string::npos) << verdicts[0].advice;
}

TEST(ForkCow, ALineThatMadeAPartOfThemHasItsFigure) {
  const auto made_by = [](std::int64_t first_mib, std::int64_t second_mib,
                          const std::vector<std::int64_t>& copied_mib) {
    RecordingAccount recording = workers(copied_mib, "/usr/bin/python3.11", true);
    const StackId read = literal::python_stack(recording.stacks, "/home/u/b.py", 35, "count");
    add_copies(recording, literal::python_stack(recording.stacks, "/home/u/a.py", 7, "build"), read, first_mib);
    add_copies(recording, literal::python_stack(recording.stacks, "/home/u/a.py", 9, "add"), read, second_mib);
    const std::string text = verdicts_of(recording).front().headline;
    return text.substr(text.find("; ") + 2);
  };
  EXPECT_EQ(made_by(40, 20, {60}), "most objects made at a.py:7: 40 MiB, read at b.py:35)");
  EXPECT_EQ(made_by(40, 20, {60, 60}), "most objects made at a.py:7: 40 MiB each, read at b.py:35)");
  EXPECT_EQ(made_by(40, 20, {60, 30}), "most objects made at a.py:7: 60 MiB of 90 MiB copied in all, read at b.py:35)");
  EXPECT_EQ(made_by(57, 3, {60}), "objects made at a.py:7, read at b.py:35)");
}

// Copies share the pages out as their samples do; a small share is not told apart.
TEST(ForkCow, CopiesOfTheCollectorAndOfReadersAreTwoFigures) {
  const auto figures = [](std::int64_t by_collector, std::int64_t by_reader) {
    RecordingAccount recording = workers({60}, "/usr/bin/python3.11", true);
    const StackId made = literal::python_stack(recording.stacks, "/home/u/a.py", 7, "build");
    add_copies(recording, made, collecting(recording.stacks), by_collector);
    add_copies(recording, made, literal::python_stack(recording.stacks, "/home/u/b.py", 40, "use"), by_reader);
    std::map<std::string, std::int64_t> found;
    for (const Verdict& verdict : verdicts_of(recording)) found[verdict.id] = verdict.bytes / kMiB;
    return found;
  };
  using Figures = std::map<std::string, std::int64_t>;
  EXPECT_EQ(figures(20, 40), (Figures{{"fork-cow-collector", 20}, {"fork-cow-refcount", 40}}));
  EXPECT_EQ(figures(2, 58), (Figures{{"fork-cow-refcount", 60}}));
  EXPECT_EQ(figures(58, 2), (Figures{{"fork-cow-collector", 60}}));
}

// Nothing was read: a worker that deletes what it inherited copies it.
TEST(ForkCow, WhoFreesIsNotSaidToRead) {
  RecordingAccount recording = workers({60}, "/usr/bin/python3.11", true);
  const StackId made = literal::python_stack(recording.stacks, "/home/u/a.py", 7, "build");
  const StackId read = literal::python_stack(recording.stacks, "/home/u/b.py", 35, "count");
  std::vector<FrameId> frames{recording.stacks.intern(Frame{.function = "_int_free", .file = ""}),
                              recording.stacks.intern(Frame{.function = "free", .file = ""})};
  const StackId drop = literal::python_stack(recording.stacks, "/home/u/b.py", 40, "drop");
  for (const FrameId frame : recording.stacks[drop]) frames.push_back(frame);
  add_copies(recording, made, recording.stacks.intern(frames), 40);
  add_copies(recording, made, read, 20);
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_NE(verdicts[0].headline.find("(fork COW; objects made at a.py:7, freed at b.py:40)"), std::string::npos)
      << verdicts[0].headline;
  EXPECT_TRUE(verdicts[0].why.starts_with("Freeing a block writes to its page")) << verdicts[0].why;
  EXPECT_NE(verdicts[0].why.find("; 9.0 MiB of objects are left."), std::string::npos) << verdicts[0].why;
  EXPECT_TRUE(verdicts[0].advice.starts_with("Let the worker keep what it inherited")) << verdicts[0].advice;
}

TEST(ForkCow, WritesNameTheLinesAndFreeBlocksTheRemedy) {
  RecordingAccount recording = workers({60, 61}, "/x/numpy/core/_multiarray.so", true);
  const StackId made = recording.processes[1].accounts[0].slices[0].site.stack;
  const StackId wrote = literal::python_stack(recording.stacks, "/home/u/b.py", 4, "fill");
  add_copies(recording, made, wrote, 60);
  auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(
      verdicts[0].headline,
      "2 workers copied 121 MiB together by writing to memory shared since fork (made at a.py:7, written at b.py:4)");
  EXPECT_EQ(verdicts[0].advice.find("malloc_trim"), std::string::npos);

  recording = workers({60}, "/usr/bin/job", false);  // a program in C whose freed heap is used again
  recording.processes[1].accounts = {literal::walk(1.5, {{Cause::fork_cow, 60, kEmptyStack, "[heap]"}})};
  add_copies(recording, kEmptyStack, literal::native_stack(recording.stacks, {{"refill", "/usr/bin/job"}}), 60);
  verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "fork-cow-write");
  EXPECT_NE(verdicts[0].advice.find("malloc_trim"), std::string::npos);
}

TEST(ForkCow, AParentThatWritesIsReportedOnce) {
  RecordingAccount recording = workers({}, "/usr/bin/python3.11", true);
  const StackId array = literal::python_stack(recording.stacks, "/home/u/a.py", 7, "build", "/x/_multiarray.so");
  const StackId objects = literal::python_stack(recording.stacks, "/home/u/a.py", 9, "build");
  recording.processes[0].copies = {{1, array, kEmptyStack, 40 * kMiB}, {1, objects, kEmptyStack, 40 * kMiB}};
  EXPECT_EQ(headlines(recording),
            "fork-cow-write info: the parent copied 40 MiB by writing to memory shared since fork (made at a.py:7)\n");
  recording.processes[0].copies = {{1, array, kEmptyStack, 4 * kMiB}, {1, objects, kEmptyStack, 40 * kMiB}};
  EXPECT_EQ(verdicts_of(recording)[0].id, "steady");
}

// A parent and `count` readers, each with this RSS, of it in files, and this PSS.
RecordingAccount readers(int count, std::int64_t rss_mib, std::int64_t file_mib, std::int64_t pss_mib) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, 2);
  for (int i = 0; i < count; ++i) {
    ProcessAccount process = literal::python_process(10 + i, {"prog"});
    process.ended_s = 2;
    process.accounts.push_back(literal::walk(1, {{Cause::stack, rss_mib}}));
    process.totals = {literal::totals(1, rss_mib, pss_mib, 0)};
    process.polls = {{1, rss_mib * kMiB, file_mib * kMiB}, {1.5, 2 * kMiB, kMiB}};
    recording.processes.push_back(process);
  }
  return recording;
}

TEST(DoubleCounted, ASumOfRssFarAbovePss) {
  const auto verdicts = verdicts_of(readers(4, 100, 90, 30));
  const auto found = std::ranges::find(verdicts, "rss-double-counted", &Verdict::id);
  ASSERT_NE(found, verdicts.end());
  EXPECT_EQ(found->headline,
            "RSS summed over the processes (400 MiB) counts shared memory several times: together they had 120 MiB "
            "(PSS), when they had most");
  EXPECT_EQ(found->bytes, 280 * kMiB);
  EXPECT_EQ(found->evidence["rss_less_shared_bytes"], 40 * kMiB);
  EXPECT_EQ(found->pid, std::nullopt);
}

TEST(DoubleCounted, DoesNotCompareAPeakWithAnOlderReading) {
  RecordingAccount recording = readers(2, 300, 10, 295);
  for (ProcessAccount& process : recording.processes) {
    process.accounts = {literal::walk(0.5, {{Cause::anonymous, 50}}), literal::walk(1, {{Cause::anonymous, 300}})};
    process.totals = {literal::totals(0.5, 50, 40, 38)};
    process.polls.insert(process.polls.begin(), {0.5, 50 * kMiB, 10 * kMiB});
  }
  for (const Verdict& verdict : verdicts_of(recording)) EXPECT_NE(verdict.id, "rss-double-counted");
}

// What was read early says nothing of what they share later.
TEST(DoubleCounted, WhereNobodyReadThemAtTheirPeakPageWalksTell) {
  RecordingAccount recording = readers(3, 300, 290, 100);
  for (ProcessAccount& process : recording.processes) {
    Account peak = literal::walk(1, {{Cause::file_cache, 290, kEmptyStack, "/data"}, {Cause::anonymous, 10}});
    peak.slices.open()[0].exclusive_bytes = 0;
    process.accounts = {literal::walk(0.5, {{Cause::anonymous, 10}}), peak};
    process.totals = {literal::totals(0.5, 10, 9, 8)};
    process.polls.insert(process.polls.begin(), {0.5, 10 * kMiB, kMiB});
  }
  const auto verdicts = verdicts_of(recording);
  const auto found = std::ranges::find(verdicts, "rss-double-counted", &Verdict::id);
  ASSERT_NE(found, verdicts.end());
  EXPECT_NE(found->headline.find("(900 MiB) counts shared memory several times"), std::string::npos) << found->headline;
  EXPECT_NE(found->headline.find("(PSS, an estimate)"), std::string::npos) << found->headline;
}

TEST(DoubleCounted, SilentWhereLittleIsShared) {
  for (const auto& recording : {readers(4, 100, 90, 70), readers(2, 100, 90, 50), readers(1, 400, 90, 100)})
    for (const Verdict& verdict : verdicts_of(recording)) EXPECT_NE(verdict.id, "rss-double-counted");
}

TEST(ForkCow, InheritedHeapOfCpythonHoldsObjects) {
  RecordingAccount recording = workers({60}, "/usr/bin/python3.11", true);
  recording.processes[1].accounts = {literal::walk(1.5, {{Cause::fork_cow, 60, kEmptyStack, "[heap]"}})};
  EXPECT_EQ(headlines(recording),
            "fork-cow-refcount warning: 1 worker (pid 11) copied 60 MiB of what it inherited (fork COW)\n");
}

StackId python_frames(StackTable& stacks, const std::vector<std::string>& files) {
  std::vector<FrameId> ids;
  for (const std::string& file : files)
    ids.push_back(stacks.intern(Frame{.kind = FrameKind::python, .function = "f", .file = file, .line = 1}));
  return stacks.intern(ids);
}

TEST(Blame, InnermostLineThatTheReaderCanChange) {
  StackTable stacks;
  const auto blamed = [&](const std::vector<std::string>& files) {
    return blamed_frame(stacks, python_frames(stacks, files))->file;
  };
  EXPECT_EQ(blamed({"/usr/lib/python3.11/json/decoder.py", "/home/u/a.py", "/home/u/b.py"}), "/home/u/a.py");
  EXPECT_EQ(blamed({"/v/lib/python3.11/site-packages/numpy/x.py", "/home/u/a.py"}), "/home/u/a.py");
  EXPECT_EQ(blamed({"/usr/lib/python3.11/json/decoder.py", "/usr/lib/python3/dist-packages/pandas/io.py"}),
            "/usr/lib/python3/dist-packages/pandas/io.py");
  EXPECT_EQ(blamed({"<frozen importlib._bootstrap>", "/usr/lib/python3.11/runpy.py"}), "/usr/lib/python3.11/runpy.py");
  EXPECT_EQ(blamed({"<frozen importlib._bootstrap>", "<string>"}), "<string>");
  const std::string spawn = "/usr/lib/python3.11/multiprocessing/spawn.py";
  EXPECT_EQ(blamed({spawn, "<string>"}), spawn);
  EXPECT_EQ(blamed({"/home/u/a.py", spawn, "<string>"}), "/home/u/a.py");
  EXPECT_EQ(blamed({"/usr/lib/python3.11/json/decoder.py", "<string>"}), "<string>");
  EXPECT_EQ(blamed({"/home/u/lib/pythonic/a.py", "/home/u/b.py"}), "/home/u/lib/pythonic/a.py");
  EXPECT_EQ(blamed_frame(stacks, kEmptyStack), nullptr);
}

TEST(Blame, NamelessNativeStackIsNamedByItsOffset) {
  StackTable stacks;
  EXPECT_EQ(blamed_line(stacks, literal::native_stack(stacks, {{"", "/opt/a"}, {"", "/opt/b"}})), "a+0x1000");
  EXPECT_EQ(blamed_line(stacks, literal::native_stack(stacks, {{"mmap", "/usr/lib/libc.so.6"}, {"", "/opt/a"}})),
            "a+0x1001");
}

TEST(Blame, ContainersOfTheLanguageAreNotToBlame) {
  StackTable stacks;
  const std::string program = "/home/u/program";
  const auto blamed = [&](const std::vector<std::pair<std::string, std::string>>& frames) {
    return blamed_line(stacks, literal::native_stack(stacks, frames));
  };
  EXPECT_EQ(blamed({{"malloc", "/usr/lib/libc.so.6"},
                    {"operator new(unsigned long)", "/usr/lib/libstdc++.so.6"},
                    {"void std::vector<int>::_M_realloc_insert<int>(int&&)", program},
                    {"grow(Pool&)", program},
                    {"main", program}}),
            "grow(Pool&) (program)");
  EXPECT_EQ(blamed({{"<alloc::vec::Vec<T> as core::clone::Clone>::clone", program}, {"job::run", program}}),
            "job::run (program)");
  EXPECT_EQ(blamed({{"std::vector<int>::reserve(unsigned long)", program}, {"_start", program}}),
            "std::vector<int>::reserve(unsigned long) (program)");
  // By file where it is known: inlined code of a header stands in the caller's module.
  Frame header, user;
  header.module = user.module = stacks.intern(Module{program, "id"});
  header.function = "allocate";
  header.file = "/usr/include/c++/12/bits/new_allocator.h";
  header.line = 137;
  user.function = "grow";
  user.file = "/home/u/grow.cc";
  user.line = 7;
  EXPECT_EQ(blamed_line(stacks, stacks.intern({stacks.intern(header), stacks.intern(user)})), "grow.cc:7 in grow");
}

}  // namespace
}  // namespace whyrss::verdict_test
