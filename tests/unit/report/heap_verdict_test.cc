// What is said about a heap: live, freed and kept, pinned; and when nothing is said.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "literal_accounts.h"
#include "report/render/text.h"
#include "report/verdicts/verdict.h"
#include "report/view/build_view.h"
#include "verdicts_of.h"

namespace whyrss::heap_verdict_test {
namespace {

using literal::kMiB;
using literal::Part;

struct Lines {
  StackTable stacks;
  StackId built = literal::native_stack(stacks, {{"malloc", "/usr/lib/libc.so.6"}, {"build", "/opt/prog"}});
  StackId kept = literal::native_stack(stacks, {{"malloc", "/usr/lib/libc.so.6"}, {"keep", "/opt/prog"}});
};

// A program that is seen with each of these lists of parts, one after the other.
RecordingAccount seen(const Lines& lines, const std::vector<std::vector<Part>>& walks) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, 9);
  recording.stacks = lines.stacks;
  ProcessAccount process = literal::python_process(10, {"prog"});
  process.python.reset();
  double time_s = 1;
  for (const std::vector<Part>& parts : walks) process.accounts.push_back(literal::walk(time_s++, parts));
  recording.processes.push_back(process);
  return recording;
}

// It is walked at these times, and ends by itself.
void ends(RecordingAccount& recording, const std::vector<double>& walks_s, double ended_s) {
  recording.info.duration_s = ended_s;
  ProcessAccount& process = recording.processes.front();
  for (std::size_t i = 0; i < walks_s.size(); ++i) process.accounts[i].time_s = walks_s[i];
  process.ended_s = ended_s;
  process.has_left = true;
}

TEST(HeapRetained, FreedMemoryThatStaysIsReportedAtTheEnd) {
  const Lines lines;
  const RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 330, lines.built}},
                   {{Cause::heap_live, 5, lines.kept}, {Cause::heap_retained, 318, lines.built, "[heap]"}}});
  EXPECT_EQ(
      headlines(recording),
      "heap-retained warning: 318 MiB freed, but kept by glibc malloc (last allocated in build (prog)): not a leak, "
      "and not reclaimable by the kernel\n");
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_EQ(verdict.bytes, 318 * kMiB);
  EXPECT_EQ(verdict.evidence["live_bytes"], 5 * kMiB);
  EXPECT_NE(verdict.advice.find("malloc_trim(0)"), std::string::npos);
  EXPECT_NE(verdict.why.find("5.0 MiB of the heap is still live"), std::string::npos);
  const auto& snapshots = recording.processes.front().accounts;
  EXPECT_EQ(verdict.evidence["freed_between_s"], (std::vector<double>{snapshots[0].time_s, snapshots[1].time_s}));
  EXPECT_NE(verdict.why.find("Most of it was freed between "), std::string::npos);

  RecordingAccount quick = recording;
  quick.processes.front().accounts[1].time_s = snapshots[0].time_s + 0.01;
  EXPECT_NE(verdicts_of(quick).front().why.find("Most of it was freed between 1.000 s and 1.010 s."), std::string::npos)
      << verdicts_of(quick).front().why;
}

TEST(HeapRetained, WhatIsFreedAsTheProcessEndsWasLive) {
  const Lines lines;
  std::vector<std::vector<Part>> walks;
  for (int second = 1; second <= 20; ++second) walks.push_back({{Cause::heap_live, 15 * second, lines.built}});
  walks.push_back({{Cause::heap_live, 40, lines.built}, {Cause::heap_retained, 261, lines.built}});
  walks.push_back({{Cause::heap_retained, 302, lines.built}});
  RecordingAccount recording = seen(lines, walks);
  recording.info.duration_s = 21;
  ProcessAccount& process = recording.processes.front();
  const auto with_walks_at = [&](double before_s, double between_s, double last_s) {
    process.accounts[19].time_s = before_s;
    process.accounts[20].time_s = between_s;
    process.accounts[21].time_s = last_s;
    return headlines(recording);
  };
  process.ended_s = 21;
  process.has_left = true;
  EXPECT_EQ(
      with_walks_at(20.2, 20.6, 20.95),
      "heap-growth info: 300 MiB live heap (allocated in build (prog)), still growing at the end by 15 MiB/s, "
      "freed only as it ended, after 20.2 s\n"
      "heap-retained info: 302 MiB freed as it ended, but kept by glibc malloc (last allocated in build (prog))\n");
  const std::string kept =
      "heap-retained warning: 302 MiB freed, but kept by glibc malloc (last allocated in build (prog)): not a leak, "
      "and "
      "not reclaimable by the kernel\n";
  EXPECT_EQ(with_walks_at(19.9, 19.95, 20.95), kept);  // it went on
  process.has_left = false;                            // killed
  EXPECT_EQ(with_walks_at(20.2, 20.6, 20.95), kept);

  // A program that works, frees and ends: not a leak, but where it was is said.
  process.has_left = true;
  process.accounts.erase(process.accounts.begin(), process.accounts.begin() + 18);
  EXPECT_EQ(
      headlines(recording),
      "heap-retained info: 302 MiB freed, but kept by glibc malloc (last allocated in build (prog)), freed in its "
      "last 0.8 s: not a leak, and not reclaimable by the kernel\n");
  EXPECT_NE(verdicts_of(recording).front().why.find("`whyrss report --to 20.200` shows what it held before"),
            std::string::npos);
}

// Freeing many small objects takes a while: a snapshot may come in the midst of it, and the one before long ago.
TEST(HeapGrowth, LiveUntilRssBeganToFall) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_live, 240, lines.built}},
                                            {{Cause::heap_live, 24, lines.built}},
                                            {{Cause::heap_live, 1, lines.built}}});
  ends(recording, {2, 19.9, 20}, 20);
  ProcessAccount& process = recording.processes.front();
  process.polls = {{2, 250 * kMiB}, {19.78, 250 * kMiB}};
  for (int step = 1; step <= 10; ++step) process.polls.push_back({19.8 + 0.02 * step, (250 - 24 * step) * kMiB});
  EXPECT_EQ(headlines(recording),
            "heap-growth info: 240 MiB live heap (allocated in build (prog)), freed only as it ended, after 19.8 s\n");
}

// A queue that is worked off evenly to the end is no data that was held: however much is left in the last second.
TEST(GoneSincePeak, WorkedOffEvenlyToTheEnd) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_live, 200, lines.built}},
                                            {{Cause::heap_live, 40, lines.built}},
                                            {{Cause::heap_live, 1, lines.built}}});
  ends(recording, {2, 5, 6}, 6);
  ProcessAccount& process = recording.processes.front();
  const auto drain = [&](double from_s) {
    process.live_polls.clear();
    for (double time_s = 0.1; time_s < 6; time_s += 0.1)
      process.live_polls.push_back(
          {time_s, time_s < from_s ? 200 * kMiB : std::llround(200.0 * kMiB * (6 - time_s) / (6 - from_s))});
    return headlines(recording);
  };
  EXPECT_EQ(drain(2),
            "gone-since-peak info: 199 MiB live heap gone since the peak of 200 MiB RSS (allocated in build (prog))\n");
  EXPECT_NE(drain(5.2).find("freed only as it ended"), std::string::npos) << drain(5.2);

  // Objects of Python, which no counted block holds: RSS tells, and what malloc had of them goes at the end.
  process.live_polls = {{1, 3 * kMiB}, {5.9, 0}};
  for (double time_s = 0.1; time_s < 6; time_s += 0.05)
    process.polls.push_back(
        {time_s, time_s < 2 ? 220 * kMiB : std::llround(200.0 * kMiB * (6 - time_s) / 4) + 20 * kMiB});
  EXPECT_EQ(headlines(recording).find("freed only as it ended"), std::string::npos) << headlines(recording);
}

// RSS need not move as a heap is freed: the counters of malloc's blocks do.
TEST(HeapGrowth, LiveUntilItsBlocksBeganToBeFreed) {
  const Lines lines;
  RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 64, lines.built}, {Cause::heap_slack, 64, lines.built, "[heap]"}},
                   {{Cause::heap_live, 30, lines.built}, {Cause::heap_retained, 98, lines.built, "[heap]"}},
                   {{Cause::heap_retained, 128, lines.built, "[heap]"}}});
  ends(recording, {12, 19.96, 20}, 20);
  ProcessAccount& process = recording.processes.front();
  for (double time_s = 1; time_s < 20; time_s += 0.1) process.polls.push_back({time_s, 130 * kMiB});
  process.live_polls = {{2, 128 * kMiB}, {12, 64 * kMiB}, {19.95, 40 * kMiB}, {19.96, 30 * kMiB}, {19.99, 0}};
  EXPECT_EQ(headlines(recording),
            "heap-growth info: 64 MiB live heap (allocated in build (prog)), freed only as it ended, after 19.9 s\n"
            "heap-fragmented warning: 64 MiB free, but pinned by live blocks on the same pages: 64 MiB allocated in "
            "build (prog) pin 64 MiB, until 19.9 s\n");

  // What it made and freed in turn stays freed, however it ends.
  process.live_polls = {{2, 128 * kMiB}, {18, 64 * kMiB}, {18.9, 40 * kMiB}, {18.99, 0}};
  process.accounts[1].time_s = 18.9;
  EXPECT_TRUE(headlines(recording).starts_with("heap-retained warning: 128 MiB freed, but kept by glibc malloc"))
      << headlines(recording);
}

// Free pages that the allocator kept while the program worked, and gave back as that freed the rest.
TEST(HeapRetained, KeptUntilTheProgramEnded) {
  const Lines lines;
  RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 150, lines.built}},
                   {{Cause::heap_live, 90, lines.built}, {Cause::heap_retained, 60, lines.built, "[heap]"}},
                   {{Cause::heap_live, 1, lines.built}}});
  recording.info.duration_s = 20;
  ProcessAccount& process = recording.processes.front();
  for (const std::size_t i : {0U, 1U, 2U}) process.accounts[i].time_s = std::array{2.0, 12.0, 20.0}.at(i);
  process.live_polls = {{2, 150 * kMiB}, {12, 90 * kMiB}, {19.95, 0}};
  process.ended_s = 20;
  process.has_left = true;
  EXPECT_NE(headlines(recording).find("heap-retained info: 60 MiB freed, but kept by glibc malloc (last allocated in "
                                      "build (prog)): not a leak, and not reclaimable by the kernel; until 19.9 s\n"),
            std::string::npos)
      << headlines(recording);
}

// As the program works half of the heap is free and pinned; all of it is kept, and of no interest, once it has ended.
TEST(HeapFragmented, OfAProgramThatFreesItsHeapAsItEndsIsThatOfBefore) {
  const Lines lines;
  const std::vector<Part> pinned{{Cause::heap_live, 84, lines.kept}, {Cause::heap_slack, 73, lines.kept, "[heap]"}};
  RecordingAccount recording = seen(
      lines, {pinned, pinned, {{Cause::heap_live, 1, lines.kept}, {Cause::heap_retained, 156, lines.kept, "[heap]"}}});
  ends(recording, {2, 19.9, 20}, 20);
  EXPECT_EQ(
      headlines(recording),
      "heap-growth info: 84 MiB live heap (allocated in keep (prog)), freed only as it ended, after 19.9 s\n"
      "heap-fragmented warning: 73 MiB free, but pinned by live blocks on the same pages: 84 MiB allocated in keep "
      "(prog) pin 73 MiB, until 19.9 s\n");
}

// A runtime that maps its own heap (V8, PHP) unmaps it on its way out, as a program may that holds it to its end.
TEST(GoneSincePeak, WhatIsUnmappedAtTheEndMayBeALeak) {
  const Lines lines;
  const auto why_with = [&](double unmapped_s, double mapped_s) {
    RecordingAccount recording =
        seen(lines, {{{Cause::anonymous, 10, lines.kept}},
                     {{Cause::anonymous, 10, lines.kept}, {Cause::anonymous, 250, lines.built}},
                     {{Cause::anonymous, 10, lines.kept}}});
    recording.info.duration_s = 20;
    ProcessAccount& process = recording.processes.front();
    process.accounts[0].time_s = mapped_s - 0.1;
    process.accounts[1].time_s = mapped_s;
    process.accounts[2].time_s = 20;
    for (double time_s = 1; time_s < 20; time_s += 0.1)
      process.polls.push_back({time_s, (time_s >= mapped_s && time_s <= unmapped_s ? 260 : 10) * kMiB});
    process.ended_s = 20;
    process.has_left = true;
    const std::vector<Verdict> found = verdicts_of(recording);
    const auto gone = std::ranges::find(found, "gone-since-peak", &Verdict::id);
    return gone == found.end() ? "" : gone->headline.substr(gone->headline.find(" in build (prog)")) + gone->why;
  };
  EXPECT_EQ(
      why_with(19.85, 2),
      " in build (prog)), unmapped only as it ended, after 19.8 sThe memory was there until the program ended, and "
      "was unmapped on its way out: whether a longer run would give it back is not known.");
  const std::string no_leak =
      " in build (prog))The memory was there when RSS was largest and has been given back since, so it is no leak.";
  EXPECT_EQ(why_with(18.5, 2), no_leak);
  EXPECT_EQ(why_with(19.85, 18.5), no_leak) << "what it works with at a time";
}

// The locals of main() go when it returns, right before the last snapshot; so may go what the program deletes itself.
TEST(HeapRetained, WhatWasLiveNearlyToTheEndIsSaidToBe) {
  const Lines lines;
  const auto headlines_with = [&](const std::vector<Part>& at_end, double made_s = 18.5) {
    RecordingAccount recording =
        seen(lines, {{{Cause::heap_live, 10, lines.kept}},
                     {{Cause::heap_live, 10, lines.kept}, {Cause::heap_live, 250, lines.built}},
                     {{Cause::heap_live, 10, lines.kept}, {Cause::heap_live, 250, lines.built}},
                     at_end});
    recording.info.duration_s = 20.1;
    ProcessAccount& process = recording.processes.front();
    process.accounts[1].time_s = made_s;
    process.accounts[2].time_s = 19.9;
    process.accounts[3].time_s = 20;
    process.ended_s = 20.1;
    process.has_left = true;
    return headlines(recording);
  };
  const std::string kept =
      headlines_with({{Cause::heap_live, 10, lines.kept}, {Cause::heap_retained, 250, lines.built, "[heap]"}});
  EXPECT_EQ(kept.find("heap-retained info: 250 MiB freed, but kept by glibc malloc (last allocated in build (prog)), "
                      "freed in its last 0.2 s: not a leak, and not reclaimable by the kernel\n"),
            0U)
      << kept;
  // Made in its last second too.
  EXPECT_EQ(
      headlines_with({{Cause::heap_live, 10, lines.kept}, {Cause::heap_retained, 250, lines.built, "[heap]"}}, 19.2),
      kept);
  const std::string gone = headlines_with({{Cause::heap_live, 10, lines.kept}});
  EXPECT_EQ(gone.find("gone-since-peak info: 250 MiB live heap gone since the peak of 260 MiB RSS (allocated in "
                      "build (prog)), freed in its last 0.2 s\n"),
            0U)
      << gone;
}

// What grows until main() returns is no leak that was mended: it is said as live, and what becomes of it comes after.
TEST(HeapGrowth, WhatWasHeldForLongIsLiveUntilTheEnd) {
  const Lines lines;
  RecordingAccount recording = seen(
      lines, {{{Cause::heap_live, 10, lines.kept}, {Cause::heap_live, 100, lines.built}},
              {{Cause::heap_live, 10, lines.kept}, {Cause::heap_live, 180, lines.built}},
              {{Cause::heap_live, 10, lines.kept}, {Cause::heap_live, 250, lines.built}, {Cause::heap_retained, 20}},
              {{Cause::heap_live, 10, lines.kept}, {Cause::heap_retained, 270, lines.built, "[heap]"}}});
  ends(recording, {5.0, 16.5, 19.4, 20.0}, 20.1);
  ProcessAccount& process = recording.processes.front();
  EXPECT_EQ(
      headlines(recording),
      "heap-growth info: 260 MiB live heap (allocated in build (prog)), freed only as it ended, after 19.4 s\n"
      "heap-retained info: 270 MiB freed as it ended, but kept by glibc malloc (last allocated in build (prog))\n");
  // Made and freed right before the end: nothing says that it would have stayed.
  for (const std::size_t early : {0U, 1U}) process.accounts[early] = literal::walk(process.accounts[early].time_s, {});
  EXPECT_EQ(
      headlines(recording),
      "heap-retained info: 270 MiB freed, but kept by glibc malloc (last allocated in build (prog)), freed in its last "
      "0.7 s: not a leak, and not reclaimable by the kernel\n");
}

// What it held to its end is one thing, what it had taken and freed before another.
TEST(HeapGrowth, WhatHadGoneBeforeTheEndIsNamedBesideWhatWasHeld) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_live, 100, lines.kept}},
                                            {{Cause::heap_live, 100, lines.kept}, {Cause::heap_live, 96, lines.built}},
                                            {{Cause::heap_live, 100, lines.kept}},
                                            {{Cause::heap_live, 100, lines.kept}},
                                            {}});
  ends(recording, {5.0, 6.0, 7.0, 19.9, 20.0}, 20.1);
  EXPECT_EQ(headlines(recording),
            "heap-growth info: 100 MiB live heap (allocated in keep (prog)), flat since 7.0 s, freed only as it ended, "
            "after 19.9 s\n"
            "gone-since-peak info: 96 MiB live heap gone since the peak of 196 MiB RSS (allocated in build (prog))\n");
}

// An allocator may give back for seconds what was freed at once, long before the end.
TEST(HeapGrowth, WhatWasFreedBeforeTheEndIsNotFreedOnlyAsItEnded) {
  const Lines lines;
  RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 240, lines.built}},
                   {{Cause::heap_live, 240, lines.built}},
                   {{Cause::heap_live, 10, lines.built}, {Cause::heap_retained, 200, lines.built}},
                   {{Cause::heap_live, 10, lines.built}}});
  ends(recording, {2.0, 19.1, 19.3, 20.0}, 20);
  ProcessAccount& process = recording.processes.front();
  process.polls = {{2, 250 * kMiB}, {19.1, 250 * kMiB}};
  for (int step = 1; step <= 8; ++step) process.polls.push_back({19.1 + 0.1 * step, (250 - 28 * step) * kMiB});
  EXPECT_TRUE(headlines(recording).starts_with("gone-since-peak info: 230 MiB live heap gone since the peak of "))
      << headlines(recording);
}

// What was freed long before, and kept, has the figures of before the end.
TEST(HeapRetained, WhatWasFreedLongBeforeIsNotWhatWasHeld) {
  const Lines lines;
  RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 60, lines.kept}, {Cause::heap_live, 120, lines.built}},
                   {{Cause::heap_live, 60, lines.kept}, {Cause::heap_retained, 120, lines.built, "[heap]"}},
                   {{Cause::heap_live, 60, lines.kept}, {Cause::heap_retained, 120, lines.built, "[heap]"}},
                   {{Cause::heap_retained, 150, lines.built, "[heap]"}}});
  ends(recording, {5.0, 6.0, 19.9, 20.0}, 20.1);
  EXPECT_EQ(headlines(recording),
            "heap-retained warning: 120 MiB freed, but kept by glibc malloc (last allocated in build (prog)): not a "
            "leak, and not reclaimable by the kernel; until 19.9 s\n"
            "heap-growth info: 60 MiB live heap (allocated in keep (prog)), freed only as it ended, after 19.9 s\n");
}

TEST(HeapRetained, LiveMemoryIsGrowthAndNothingElse) {
  const Lines lines;
  EXPECT_EQ(headlines(seen(lines, {{{Cause::heap_live, 330, lines.built}, {Cause::heap_retained, 7}}})),
            "heap-growth info: 330 MiB live heap (allocated in build (prog))\n");
}

TEST(HeapRetained, GivenBackMemoryIsGone) {
  const Lines lines;
  const RecordingAccount recording = seen(
      lines, {{{Cause::heap_live, 330, lines.built}}, {{Cause::heap_live, 5, lines.built}, {Cause::heap_retained, 4}}});
  EXPECT_EQ(headlines(recording),
            "gone-since-peak info: 325 MiB live heap gone since the peak of 330 MiB RSS (allocated in build "
            "(prog))\n");
}

// The figure is the difference of the table's, whatever of it the allocator keeps.
TEST(HeapRetained, OfWhatIsGoneAPartMayBeKept) {
  const Lines lines;
  const RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 76, lines.built}, {Cause::anonymous, 20}},
                   {{Cause::heap_live, 1, lines.built}, {Cause::heap_retained, 35}, {Cause::anonymous, 20}}});
  const auto verdicts = verdicts_of(recording);
  const auto gone = std::ranges::find(verdicts, "gone-since-peak", &Verdict::id);
  ASSERT_NE(gone, verdicts.end());
  EXPECT_EQ(gone->headline, "75 MiB live heap gone since the peak of 96 MiB RSS (allocated in build (prog))");
  EXPECT_EQ(gone->bytes, 75 * kMiB);
  EXPECT_EQ(gone->evidence["left_rss_bytes"], 40 * kMiB);
  EXPECT_NE(gone->why.find("RSS fell by 40 MiB of it"), std::string::npos) << gone->why;
  EXPECT_EQ(gone->advice, "If the peak is the trouble (a memory limit), hold less at a time.") << "no line is named";
  // All of it kept: nothing is gone.
  EXPECT_EQ(headlines(seen(lines, {{{Cause::heap_live, 76, lines.built}},
                                   {{Cause::heap_live, 1, lines.built}, {Cause::heap_retained, 75}}}))
                .find("gone-since-peak"),
            std::string::npos);
}

TEST(HeapRetained, EveryAllocatorHasItsRemedy) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_retained, 50}}});
  for (const auto& [allocator, name, remedy] : {std::tuple{"glibc", "glibc malloc", "malloc_trim(0)"},
                                                {"jemalloc", "jemalloc", "dirty_decay_ms:0"},
                                                {"tcmalloc", "tcmalloc", "TCMALLOC_RELEASE_RATE"},
                                                {"mimalloc", "mimalloc", "MIMALLOC_PURGE_DELAY"},
                                                {"other", "the allocator", "compare-allocators"}}) {
    recording.processes[0].allocator = allocator;
    const Verdict verdict = verdicts_of(recording).front();
    EXPECT_EQ(verdict.headline,
              std::string("50 MiB freed, but kept by ") + name + ": not a leak, and not reclaimable by the kernel");
    EXPECT_NE(verdict.advice.find(remedy), std::string::npos) << verdict.advice;
    EXPECT_EQ(verdict.advice.find("Python"), std::string::npos) << verdict.advice;
  }
  recording.processes[0].allocator = "glibc";
  recording.processes[0].python.emplace();
  EXPECT_NE(verdicts_of(recording).front().advice.find("From Python: ctypes.CDLL(None).malloc_trim(0)."),
            std::string::npos);
}

TEST(HeapRetained, PymallocKeepsItsOwnPart) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_retained, 50}}});
  recording.processes[0].accounts[0].pymalloc.retained = 20 * kMiB;
  EXPECT_NE(headlines(recording).find("kept by glibc malloc and CPython's pymalloc: not a leak"), std::string::npos);
  recording.processes[0].accounts[0].pymalloc.retained = 49 * kMiB;
  recording.processes[0].accounts[0].slices.open()[0].site.stack = lines.built;
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_NE(verdict.headline.find("kept by CPython's pymalloc (arenas mapped in build (prog)): not"),
            std::string::npos);
  EXPECT_EQ(verdict.advice.find("malloc_trim"), std::string::npos);  // it would not help
}

// A line is known of when the arenas grew, where no object was sampled: it is not said to keep them.
TEST(HeapGrowth, ObjectsThatNobodySampledStandUnderTheLineThatMadeTheirArenasGrow) {
  StackTable stacks;
  const StackId grew = literal::python_stack(stacks, "/home/u/a.py", 3, "temporary");
  const StackId other = literal::python_stack(stacks, "/home/u/a.py", 9, "keep");
  RecordingAccount recording;
  recording.info = literal::finished({"python3", "a.py"}, 9);
  recording.stacks = stacks;
  ProcessAccount process = literal::python_process(10, {"python3", "a.py"});
  process.accounts.push_back(literal::walk(1, {{Cause::heap_live, 50, grew}, {Cause::heap_live, 10, other}}));
  PymallocBytes& pymalloc = process.accounts[0].pymalloc;
  pymalloc = {.live = 58 * kMiB, .slack = 0, .retained = 0, .live_by_arena = 58 * kMiB};
  recording.processes.push_back(process);
  EXPECT_EQ(headlines(recording),
            "heap-growth info: 60 MiB live Python objects (most in arenas mapped at a.py:3 in temporary: 50 MiB)\n");
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_NE(verdict.why.find("need not be the line whose objects are in them"), std::string::npos) << verdict.why;
  EXPECT_NE(verdict.advice.find("--python-objects off"), std::string::npos) << verdict.advice;
  EXPECT_EQ(verdict.advice.find("a.py"), std::string::npos) << verdict.advice;
  EXPECT_EQ(verdict.evidence["lines_by_arena"], true);
  recording.processes[0].accounts[0].pymalloc.live_by_arena = 0;
  EXPECT_NE(headlines(recording).find("(most made at a.py:3 in temporary: 50 MiB)"), std::string::npos);
}

// What a C library asked for is no Python object, whoever called it.
TEST(HeapGrowth, PythonObjectsAreSaidOnlyOfWhatIsThat) {
  StackTable stacks;
  const StackId kept = literal::python_stack(stacks, "/home/u/a.py", 9, "keep");
  const StackId leaked = literal::python_stack(stacks, "/home/u/a.py", 6, "leak", "/usr/lib/libffi.so.8");
  RecordingAccount recording;
  recording.info = literal::finished({"python3", "a.py"}, 9);
  recording.stacks = stacks;
  ProcessAccount process = literal::python_process(10, {"python3", "a.py"});
  process.accounts.push_back(literal::walk(1, {{Cause::heap_live, 70, kept}, {Cause::heap_live, 58, leaked}}));
  recording.processes.push_back(process);
  const Verdict mixed = verdicts_of(recording).front();
  EXPECT_EQ(mixed.headline, "128 MiB live heap (most allocated at a.py:9 in keep: 70 MiB, 58 MiB at a.py:6 in leak)");
  EXPECT_TRUE(mixed.why.starts_with("The program allocated this (70 MiB of it for Python objects) and has not freed"))
      << mixed.why;
  EXPECT_NE(mixed.advice.find("a library that does not free"), std::string::npos) << mixed.advice;
  recording.processes[0].accounts[0] = literal::walk(1, {{Cause::heap_live, 70, kept}});
  const Verdict objects = verdicts_of(recording).front();
  EXPECT_EQ(objects.headline, "70 MiB live Python objects (made at a.py:9 in keep)");
  EXPECT_NE(objects.advice.find("a reference cycle that gc has not collected"), std::string::npos) << objects.advice;
  // What the interpreter asks for itself is of objects too.
  const StackId own = literal::native_stack(recording.stacks, {{"PyDict_SetDefault", "/usr/bin/python3.11"}});
  recording.processes[0].accounts[0] = literal::walk(1, {{Cause::heap_live, 50, kept}, {Cause::heap_live, 20, own}});
  EXPECT_TRUE(verdicts_of(recording).front().headline.starts_with("70 MiB live Python objects"));
  // Pools hold objects alone, whether a line is known or not.
  recording.processes[0].accounts[0] = literal::walk(1, {{Cause::heap_live, 70}});
  recording.processes[0].accounts[0].pymalloc.live = 69 * kMiB;
  EXPECT_TRUE(verdicts_of(recording).front().headline.starts_with("70 MiB live Python objects"));
}

// A line that has nearly all of it bears its figure where that is an estimate.
TEST(HeapGrowth, AnEstimatedLineHasItsFigureAndError) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_live, 50, lines.built}}});
  const double error = 2.0 * kMiB;
  recording.processes[0].accounts[0].slices.open()[0].variance = error * error;
  EXPECT_EQ(headlines(recording), "heap-growth info: 50 MiB live heap (allocated in build (prog): 50 MiB ± 4 %)\n");
  recording.processes[0].accounts[0].slices.open()[0].variance = 100 * error * error * 100;
  EXPECT_EQ(headlines(recording), "heap-growth info: 50 MiB live heap (no line is more than twice its error)\n");
}

TEST(HeapRetained, AnEstimateSaysSo) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_retained, 50}, {Cause::heap_live, 20, lines.kept}}});
  recording.processes[0].accounts[0].has_liveness = false;
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].severity, Severity::info);
  EXPECT_EQ(verdicts[0].headline.rfind("about 50 MiB freed", 0), 0U);
  EXPECT_NE(verdicts[0].why.find("estimate"), std::string::npos);
  EXPECT_NE(verdicts[1].why.find("estimate"), std::string::npos);
}

TEST(HeapFragmented, NamesWhoPinsThePagesAndWhatTheyHold) {
  const Lines lines;
  const RecordingAccount recording = seen(lines, {{{Cause::heap_live, 12, lines.kept},
                                                   {Cause::heap_live, 10, lines.built},
                                                   {Cause::heap_slack, 60, lines.kept},
                                                   {Cause::heap_slack, 8, lines.built}}});
  EXPECT_EQ(headlines(recording),
            "heap-fragmented warning: 68 MiB free, but pinned by live blocks on the same pages: 12 MiB "
            "allocated in keep (prog) pin 60 MiB\n"
            "heap-growth info: 22 MiB live heap (most allocated in keep (prog): 12 MiB, 10 MiB in build (prog))\n");
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_EQ(verdict.bytes, 68 * kMiB);
  EXPECT_EQ(verdict.evidence["pinned_by"][0]["growth_bytes"], 60 * kMiB);
  EXPECT_EQ(verdict.evidence["pinned_by"][0]["live_growth_bytes"], 12 * kMiB);
  EXPECT_EQ(verdict.evidence["live_bytes"], 22 * kMiB);
}

TEST(HeapFragmented, AnEstimatedPeakMakesNoEstimateOfTheEnd) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_live, 12, lines.kept}, {Cause::heap_slack, 60, lines.kept}}});
  std::vector<Account>& accounts = recording.processes[0].accounts;
  Account peak = accounts.back();
  peak.time_s -= 0.1;
  peak.rss_bytes += 2 * kMiB;
  peak.has_liveness = false;
  peak.estimated_from_s = 0;
  accounts.insert(accounts.end() - 1, peak);
  EXPECT_NE(headlines(recording).find("60 MiB free, but pinned by live blocks"), std::string::npos);
  accounts.back().has_liveness = false;
  EXPECT_EQ(headlines(recording).find("60 MiB free, but pinned by live blocks"), std::string::npos);
}

TEST(HeapFragmented, ObjectsInArenasAreNamedInExactModeOnly) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {{{Cause::heap_live, 5, lines.kept}, {Cause::heap_slack, 60, lines.kept}}});
  recording.processes[0].accounts[0].pymalloc.slack = 58 * kMiB;
  EXPECT_EQ(headlines(recording),
            "heap-fragmented warning: 60 MiB free, but pinned by live blocks on the same pages (in arenas "
            "mapped in keep (prog))\n");
  EXPECT_NE(verdicts_of(recording).front().advice.find("--mode exact"), std::string::npos);
  recording.info.mode = "exact";
  EXPECT_NE(headlines(recording).find("5.0 MiB allocated in keep (prog) pin 60 MiB"), std::string::npos);
  EXPECT_EQ(verdicts_of(recording).front().advice.find("--mode exact"), std::string::npos);
}

TEST(HeapFragmented, NoLineWhereMostPinsAreUnseen) {
  const Lines lines;
  EXPECT_EQ(
      headlines(seen(
          lines, {{{Cause::heap_live, 5, lines.kept}, {Cause::heap_slack, 1, lines.kept}, {Cause::heap_slack, 60}}})),
      "heap-fragmented warning: 61 MiB free, but pinned by live blocks on the same pages\n");
}

TEST(HeapFragmented, TheSlackOfAFullHeapIsOrdinary) {
  const Lines lines;
  EXPECT_EQ(headlines(seen(lines, {{{Cause::heap_live, 500, lines.built}, {Cause::heap_slack, 50, lines.built}}})),
            "heap-growth info: 500 MiB live heap (allocated in build (prog))\n");
  EXPECT_EQ(headlines(seen(lines, {{{Cause::heap_live, 2, lines.built}, {Cause::heap_slack, 6, lines.built}}})),
            "steady ok: nothing grew worth naming (largest growth of a process: 8.0 MiB)\n");
}

TEST(HeapFragmented, OrdinarySlackThatGrewIsNotSteady) {
  const Lines lines;
  const RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 500, lines.built}, {Cause::heap_slack, 20, lines.built}},
                   {{Cause::heap_live, 501, lines.built}, {Cause::heap_slack, 50, lines.built}}});
  const auto verdicts = find_verdicts(build_view(recording, {1, 9}));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "cause-growth");
  EXPECT_EQ(verdicts[0].headline, "30 MiB heap slack (fragmentation); 50 MiB of it are little for this heap");
}

void set_error(RecordingAccount& recording, StackId stack, double standard_error) {
  for (Account& account : recording.processes[0].accounts)
    for (Slice& slice : account.slices.open())
      if (slice.site.stack == stack) slice.variance = standard_error * standard_error;
}

TEST(HeapGrowth, ALineMayHaveGrownByMoreThanAllTogether) {
  const Lines lines;
  const RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 50, lines.kept}},
                   {{Cause::heap_live, 20, lines.kept}, {Cause::heap_live, 70, lines.built}}});
  EXPECT_EQ(find_verdicts(build_view(recording, {1, 9})).front().headline,
            "40 MiB live heap (allocated in build (prog)), 30 MiB less at other lines");
}

TEST(HeapGrowth, ALineWithinItsErrorIsNoHeadline) {
  const Lines lines;
  RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 100, lines.built}, {Cause::heap_live, 100, lines.kept}},
                   {{Cause::heap_live, 112, lines.built}, {Cause::heap_live, 108, lines.kept}}});
  recording.processes[0].born_s = 1;
  const auto grown = [&] { return find_verdicts(build_view(recording, {1, 9})).front().headline; };
  EXPECT_EQ(grown(), "20 MiB live heap (most allocated in build (prog): 12 MiB, 8.0 MiB in keep (prog))");
  set_error(recording, lines.built, 5.0 * kMiB);  // of the growth: sqrt(2) times that
  EXPECT_EQ(grown(), "20 MiB live heap (8.0 MiB of it allocated in keep (prog))");
  set_error(recording, lines.kept, 5.0 * kMiB);
  EXPECT_EQ(grown(), "20 MiB live heap (no line is more than twice its error)");
  set_error(recording, lines.built, 0.5 * kMiB);
  EXPECT_EQ(grown(), "20 MiB live heap (most allocated in build (prog): 12 MiB ± 6 %)");
}

TEST(HeapGrowth, ALineWithLittleOfItIsNoHeadline) {
  RecordingAccount recording = literal::quiet();
  std::vector<literal::Part> parts;
  for (int line = 1; line <= 20; ++line)
    parts.push_back({Cause::heap_live, line == 7 ? 5 : 4, literal::python_stack(recording.stacks, "a.py", line, "f")});
  recording.processes[0].accounts = {literal::walk(1, {}), literal::walk(9, parts)};
  recording.processes[0].ended_s = 9;
  recording.info.duration_s = 9;
  const Verdict verdict = find_verdicts(build_view(recording, whole_life(recording))).front();
  EXPECT_TRUE(verdict.headline.starts_with("81 MiB live Python objects (no line has more than 5.0 MiB of it)"))
      << verdict.headline;
}

TEST(HeapText, LinesBearTheirErrors) {
  const Lines lines;
  RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 100, lines.built}, {Cause::heap_live, 10, lines.kept}, {Cause::anonymous, 5}}});
  set_error(recording, lines.built, 3.0 * kMiB);
  set_error(recording, lines.kept, 6.0 * kMiB);
  const View view = build_view(recording, whole_life(recording));
  const std::string text = render_text(view, find_verdicts(view), {});
  EXPECT_NE(text.find("  100.0 ± 3 %  live heap           build (prog)"), std::string::npos) << text;
  EXPECT_EQ(text.find("keep (prog)"), std::string::npos);  // noise
}

TEST(HeapView, ErrorsOfBothEndsAddUp) {
  const Lines lines;
  RecordingAccount recording =
      seen(lines, {{{Cause::heap_live, 100, lines.built}}, {{Cause::heap_live, 112, lines.built}}});
  set_error(recording, lines.built, 3.0);
  recording.processes[0].accounts[0].pymalloc = {8, 5, 1};
  recording.processes[0].accounts[1].pymalloc = {10, 5, 4};
  const View view = build_view(recording, {1, 9});
  EXPECT_DOUBLE_EQ(view.processes[0].causes[0].sites[0].variance, 18);
  EXPECT_EQ(view.processes[0].pymalloc.live, 10);
  EXPECT_EQ(view.processes[0].pymalloc_growth.retained, 3);
}

TEST(HeapView, EstimateWhereAnEndHasNoLiveness) {
  const Lines lines;
  RecordingAccount recording = seen(
      lines, {{{Cause::heap_live, 100}}, {{Cause::heap_live, 112}, {Cause::heap_slack, 2}, {Cause::anonymous, 2}}});
  recording.processes[0].accounts[0].has_liveness = false;
  const View part = build_view(recording, {1, 9});
  EXPECT_TRUE(part.processes[0].find(Cause::heap_live)->estimate);
  EXPECT_TRUE(part.processes[0].find(Cause::heap_slack)->estimate);
  EXPECT_FALSE(part.processes[0].find(Cause::anonymous)->estimate);
  EXPECT_FALSE(build_view(recording, {0, 9}).processes[0].find(Cause::heap_live)->estimate);
}

}  // namespace
}  // namespace whyrss::heap_verdict_test
