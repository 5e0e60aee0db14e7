// What is made of runs under several allocators.
#include "report/compare/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "literal_accounts.h"
#include "report/compare/compare_formats.h"
#include "text_width.h"

namespace whyrss::compare_test {
namespace {

using literal::kMiB;

BareRun bare(std::int64_t peak_mib, double cpu_s) {
  return {.end = "", .wall_s = cpu_s, .cpu_s = cpu_s, .page_faults = 1000, .peak_rss_bytes = peak_mib * kMiB};
}

RecordedRun recorded(std::int64_t peak_mib, std::int64_t final_mib) {
  return {.end = "",
          .peak_rss_bytes = peak_mib * kMiB,
          .final_rss_bytes = final_mib * kMiB,
          .rss_byte_seconds = static_cast<double>(peak_mib * kMiB),
          .at_peak = {.live = peak_mib * kMiB / 2, .slack = peak_mib * kMiB / 4, .retained = 0, .metadata = 0},
          .at_end = {.live = kMiB, .slack = kMiB, .retained = (final_mib - 2) * kMiB, .metadata = 0},
          .has_parts = true,
          .allocator = "glibc"};
}

// Three runs of each kind, a few MiB apart.
Contestant contestant(const std::string& family, std::int64_t peak_mib, std::int64_t final_mib, double cpu_s) {
  Contestant who;
  who.label = who.family = family;
  who.version = "1.0";
  if (family != "glibc") who.library = "/usr/lib/lib" + family + ".so.2";
  for (const int more : {0, 2, 1}) {
    who.bare.push_back(bare(peak_mib + more, cpu_s * (1 + 0.01 * more)));
    who.recorded.push_back(recorded(peak_mib + more, final_mib + more));
  }
  return who;
}

Comparison comparison_of(std::vector<Contestant> contestants) {
  return {.command = {"/usr/bin/prog", "x"}, .contestants = std::move(contestants), .notes = {}};
}

bool says(const Comparison& comparison, const std::string& what) {
  const std::string text = conclusion(comparison);
  const bool found = text.find(what) != std::string::npos;
  if (!found) ADD_FAILURE() << text;
  return found;
}

TEST(Spread, MedianLeastMost) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(odd.values, (std::vector<double>{3, 1, 2}));
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_TRUE(spread_of({}).values.empty());
}

TEST(Spread, DistinctOnlyWithoutOverlap) {
  EXPECT_TRUE(is_distinct(spread_of({1, 2}), spread_of({3, 4})));
  EXPECT_TRUE(is_distinct(spread_of({3, 4}), spread_of({1, 2})));
  EXPECT_FALSE(is_distinct(spread_of({1, 3}), spread_of({2, 4})));
  EXPECT_FALSE(is_distinct(spread_of({1}), spread_of({9, 9})));  // one run tells no spread
}

TEST(Conclusion, NamesTheLowestAndItsPrice) {
  const Comparison comparison =
      comparison_of({contestant("glibc", 600, 300, 1.0), contestant("jemalloc", 450, 100, 1.2)});
  EXPECT_TRUE(says(comparison, "jemalloc has the lowest peak RSS: 451 MiB, 25 % less than glibc (601 MiB)."));
  EXPECT_TRUE(says(comparison, "jemalloc has the lowest RSS at the end: 101 MiB, 66 % less than glibc (301 MiB)."));
  EXPECT_TRUE(says(comparison, "Its CPU time against glibc: +20 %; wall time: +20 %."));
  EXPECT_TRUE(says(comparison, "To use it: LD_PRELOAD=/usr/lib/libjemalloc.so.2 before the command."));
}

TEST(Conclusion, HonestWithinTheSpread) {
  const Comparison comparison =
      comparison_of({contestant("glibc", 600, 300, 1.0), contestant("mimalloc", 599, 299, 1.0)});
  EXPECT_TRUE(says(comparison, "None is below glibc in peak RSS (601 MiB, runs from 600 MiB to 602 MiB)"));
  EXPECT_TRUE(says(comparison, "None is below glibc in RSS at the end"));
  EXPECT_EQ(conclusion(comparison).find("LD_PRELOAD"), std::string::npos);
}

TEST(Conclusion, TheFirstMayBeTheLowest) {
  EXPECT_TRUE(says(comparison_of({contestant("glibc", 400, 100, 1.0), contestant("tcmalloc", 500, 300, 1.0)}),
                   "glibc has the lowest peak RSS: 401 MiB; next is tcmalloc with 25 % more (501 MiB)."));
}

TEST(Conclusion, OneRunEachIsSaid) {
  Comparison comparison = comparison_of({contestant("glibc", 600, 300, 1.0), contestant("jemalloc", 450, 100, 1.2)});
  for (Contestant& who : comparison.contestants) {
    who.bare.resize(1);
    who.recorded.resize(1);
  }
  EXPECT_TRUE(says(comparison, "One run each"));
  EXPECT_TRUE(says(comparison, "jemalloc has the lowest peak RSS: 450 MiB"));
}

TEST(Conclusion, SettingsAgainstTheSameAllocatorWithout) {
  Contestant tuned = contestant("jemalloc", 450, 40, 1.3);
  tuned.label = "jemalloc tuned";
  tuned.settings = {"MALLOC_CONF=dirty_decay_ms:0"};
  const Comparison comparison =
      comparison_of({contestant("glibc", 400, 30, 1.0), contestant("jemalloc", 450, 119, 1.2), std::move(tuned)});
  EXPECT_TRUE(says(comparison,
                   "Of the settings, MALLOC_CONF=dirty_decay_ms:0 gives most back: jemalloc ends with 41 MiB instead "
                   "of 120 MiB (peak RSS: within the spread; CPU time: +8.3 %)."));
}

TEST(Conclusion, WhatFailedOtherwiseIsLeftOut) {
  Comparison comparison = comparison_of({contestant("glibc", 600, 300, 1.0), contestant("jemalloc", 450, 100, 1.2)});
  comparison.contestants[1].bare[0].end = "killed by SIGSEGV";
  EXPECT_TRUE(says(comparison, "glibc alone was measured."));
  EXPECT_TRUE(says(comparison, "Allocators under which the command ended otherwise are left out."));
  for (Contestant& who : comparison.contestants)
    for (BareRun& run : who.bare) run.end = "killed by SIGSEGV";
  EXPECT_TRUE(says(comparison, "jemalloc has the lowest peak RSS"));  // all alike: then they compare
  EXPECT_EQ(conclusion(comparison_of({})), "No run could be measured: there is nothing to conclude.");
}

TEST(Conclusion, TrimAndLiveShare) {
  Comparison comparison = comparison_of({contestant("glibc", 600, 300, 1.0)});
  Contestant& glibc = comparison.contestants[0];
  glibc.trim = {.retained_before = 300 * kMiB, .retained_after = 0, .rss_before = 350 * kMiB, .rss_after = 33 * kMiB};
  EXPECT_TRUE(says(comparison, "malloc_trim(0) at the end gave back 317 MiB of the 350 MiB that glibc then had"));
  glibc.trim->rss_after = glibc.trim->rss_before;
  EXPECT_TRUE(says(comparison, "malloc_trim(0) at the end gave nothing back (glibc)."));
  for (RecordedRun& run : glibc.recorded) run.at_peak = {.live = 97, .slack = 3, .retained = 0, .metadata = 0};
  EXPECT_TRUE(says(comparison, "97 % of glibc's heap at the peak was live"));
  for (RecordedRun& run : glibc.recorded) run.has_parts = false;
  EXPECT_TRUE(says(comparison, "is not known of these recordings"));
}

TEST(Conclusion, AnAllocatorOfTheProgramsOwnIsNotReplaced) {
  Comparison comparison = comparison_of({contestant("glibc", 600, 300, 1.0)});
  const auto with_parts = [&](const HeapParts& parts) {
    for (RecordedRun& run : comparison.contestants[0].recorded) run.at_peak = parts;
    return conclusion(comparison)
               .find(
                   "900 MiB of the 1000 MiB of heap at the peak are of an allocator inside the program or a library of "
                   "it, "
                   "which another malloc does not replace.") != std::string::npos;
  };
  EXPECT_TRUE(with_parts({.live = 100 * kMiB, .unsplit = 900 * kMiB}));
  EXPECT_FALSE(with_parts({.live = 900 * kMiB, .unsplit = 100 * kMiB}));
}

// A shell that starts the program, the program itself, and its fork.
RecordingAccount job() {
  RecordingAccount recording;
  recording.info = literal::finished({"sh", "-c", "prog"}, 10);
  const StackId pinned = literal::native_stack(recording.stacks, {{"keep", "/usr/bin/prog"}});
  const StackId last = literal::native_stack(recording.stacks, {{"churn", "/usr/bin/prog"}});
  ProcessAccount shell;
  shell.pid = 1;
  shell.ended_s = 10;
  shell.accounts = {literal::walk(0, {{Cause::heap_live, 1}}), literal::walk(10, {{Cause::heap_live, 1}})};
  ProcessAccount program;
  program.pid = 2;
  program.born_s = 1;
  program.ended_s = 9;
  program.allocator = "glibc";
  program.accounts = {
      literal::walk(
          2, {{Cause::heap_live, 96}, {Cause::file_cache, 4, kEmptyStack, "/lib/libc.so.6", 0}, {Cause::whyrss, 7}}),
      literal::walk(4, {{Cause::heap_live, 50, pinned},
                        {Cause::heap_slack, 20, pinned},
                        {Cause::heap_retained, 5, last},
                        {Cause::whyrss, 7}}),
      // The last walk comes a moment after what its events call the end.
      literal::walk(9.5, {{Cause::heap_live, 2, pinned},
                          {Cause::heap_slack, 8, pinned},
                          {Cause::heap_retained, 30, last},
                          {Cause::whyrss, 7}})};
  for (Account& account : program.accounts) account.has_liveness = true;
  ProcessAccount child;
  child.pid = 3;
  child.born_s = 2.5;
  child.ended_s = 3;
  child.accounts = {literal::walk(
      2.5,
      {{Cause::fork_shared, 90}, {Cause::fork_cow, 10}, {Cause::file_cache, 3, kEmptyStack, "/lib/libc.so.6", 0}})};
  recording.processes = {shell, program, child};
  return recording;
}

TEST(RecordedRun, OfTheWholeTreeWithoutOurselves) {
  const RecordedRun run = recorded_run(job());
  EXPECT_EQ(run.end, "");
  EXPECT_EQ(run.peak_rss_bytes, (1 + 100 + 10) * kMiB);  // at 2.5 s; what they share counts once
  EXPECT_EQ(run.at_peak.live, 97 * kMiB);
  EXPECT_EQ(run.final_rss_bytes, (1 + 2 + 8 + 30) * kMiB);
  EXPECT_EQ(run.at_end.slack, 8 * kMiB);
  EXPECT_EQ(run.at_end.retained, 30 * kMiB);
  EXPECT_TRUE(run.has_parts);
  EXPECT_EQ(run.allocator, "glibc");
  // Shell 10 s of 1, program 2 s of 100, 5 s of 75 and nothing after its end, child half a second of 10.
  EXPECT_NEAR(run.rss_byte_seconds, static_cast<double>(kMiB) * (10 + 200 + 375 + 5), 1.0);
}

TEST(RecordedRun, ThePeakIsWhenMostWasLive) {
  RecordingAccount recording;
  ProcessAccount program;
  program.accounts = {literal::walk(1, {{Cause::heap_live, 98}}),
                      literal::walk(2, {{Cause::heap_live, 10}, {Cause::heap_retained, 90}})};
  recording.processes = {program};
  const RecordedRun run = recorded_run(recording);
  EXPECT_EQ(run.peak_rss_bytes, 100 * kMiB);
  EXPECT_EQ(run.at_peak.live, 98 * kMiB);
  EXPECT_EQ(run.at_end.retained, 90 * kMiB);
}

TEST(RecordedRun, EndsWithTheProcessNotWithItsWorkers) {
  RecordingAccount recording = job();
  ProcessAccount& worker = recording.processes[2];
  worker.born_by_fork = true;
  worker.accounts = {literal::walk(2.5, {{Cause::fork_cow, 500}})};
  EXPECT_EQ(recorded_run(recording).final_rss_bytes, 41 * kMiB);
}

TEST(RecordedRun, Failures) {
  RecordingAccount recording = job();
  recording.info.exit_code = 3;
  EXPECT_EQ(recorded_run(recording).end, "exit status 3");
  recording.info.exit_signal = "SIGSEGV";
  EXPECT_EQ(recorded_run(recording).end, "killed by SIGSEGV");
  EXPECT_EQ(recorded_run(RecordingAccount{}).peak_rss_bytes, 0);
}

TEST(PinningLines, LargestFirst) {
  const std::vector<PinningLine> lines = pinning_lines(job(), true, 5);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].cause, Cause::heap_retained);
  EXPECT_EQ(lines[0].bytes, 30 * kMiB);
  EXPECT_EQ(lines[0].line, "churn (prog)");
  EXPECT_EQ(lines[1].line, "keep (prog)");
  EXPECT_EQ(pinning_lines(job(), true, 1).size(), 1U);
  EXPECT_TRUE(pinning_lines(job(), false, 5).empty());  // at the peak all was live
}

TEST(Trim, AroundItsMark) {
  RecordingAccount recording = job();
  EXPECT_FALSE(trim_effect(recording, "trim"));
  recording.marks = {{"other", 8}, {"trim", 5}};
  const std::optional<TrimEffect> trim = trim_effect(recording, "trim");
  ASSERT_TRUE(trim);
  EXPECT_EQ(trim->retained_before, 5 * kMiB);
  EXPECT_EQ(trim->retained_after, 30 * kMiB);
  EXPECT_EQ(trim->rss_before, 75 * kMiB);
  recording.marks = {{"trim", 9.6}};  // nobody looked afterwards
  EXPECT_FALSE(trim_effect(recording, "trim"));
}

TEST(CompareText, TablesAndNotes) {
  Comparison comparison = comparison_of({contestant("glibc", 600, 300, 1.0), contestant("jemalloc", 450, 100, 1.2)});
  comparison.contestants[1].pinning_lines = {{Cause::heap_slack, 12 * kMiB, "a.c:3 in keep"}};
  comparison.contestants[1].pins_at_end = true;
  comparison.notes = {"Left out: mimalloc: not found"};
  const std::string text = render_compare_text(comparison);
  for (const char* part :
       {"prog x under each allocator\n", "\n  glibc         601.0      301.0            601.0         1000  1.01 ±1%",
        "\n  jemalloc   12.0  slack  end     a.c:3 in keep\n", " jemalloc 1.0 (libjemalloc.so.2)  3 + 3  well\n",
        "Left out: mimalloc: not found\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_NE(render_compare_markdown(comparison).find("| jemalloc | 451.0 |"), std::string::npos);
}

TEST(CompareText, NoLineIsWiderThanItMayBe) {
  Comparison comparison = comparison_of({contestant("glibc", 600, 300, 1.0), contestant("jemalloc", 450, 100, 1.2)});
  const std::string name(3000, 'n');
  comparison.command = {"/usr/bin/" + name};
  comparison.contestants[1].label = "jemalloc:MALLOC_CONF=" + name;
  comparison.contestants[1].settings = {"MALLOC_CONF=" + name};
  comparison.contestants[1].pinning_lines = {{Cause::heap_slack, 12 * kMiB, name + ".c:3 in keep"}};
  comparison.contestants[1].bare[0].end = "killed by SIGKILL";
  comparison.notes = {"Left out: mimalloc: " + name};
  for (const std::size_t columns : {60U, 80U, 100U, 180U}) {
    const std::string text = render_compare_text(comparison, columns);
    EXPECT_LE(widest_line(text), columns) << text;
    EXPECT_NE(text.find("601.0"), std::string::npos) << text;
  }
}

TEST(CompareJson, FiguresAndRuns) {
  Comparison comparison = comparison_of({contestant("glibc", 600, 300, 1.0)});
  comparison.contestants[0].recorded.clear();
  const auto json = nlohmann::json::parse(render_compare_json(comparison));
  EXPECT_EQ(json["schema"], "whyrss.compare/1");
  const auto& glibc = json["contestants"][0];
  EXPECT_EQ(glibc["bare"]["peak_rss"]["median"], 601 * kMiB);
  EXPECT_EQ(glibc["bare"]["peak_rss"]["runs"].size(), 3U);
  EXPECT_TRUE(glibc["recorded"]["final_rss"].is_null());
  EXPECT_TRUE(glibc["library"].is_null());
}

RecordingAccount with_library(const std::string& library, const std::string& function, std::int64_t mib) {
  RecordingAccount recording;
  const StackId stack = literal::native_stack(recording.stacks, {{function, library}, {"load", "/home/u/prog"}});
  ProcessAccount process = literal::python_process(10, {"prog"});
  process.accounts = {literal::walk(1, {{Cause::heap_unsplit, mib, stack}, {Cause::heap_live, 20, kEmptyStack}}),
                      literal::walk(2, {})};
  recording.processes = {process};
  return recording;
}

TEST(LibraryMemory, IsOfTheAllocatorThatHasMost) {
  const std::string arrow = "/v/pyarrow/libarrow.so.2600";
  EXPECT_EQ(library_memory(with_library(arrow, "_mi_prim_alloc", 30)), LibraryMemory::arrow_mimalloc);
  EXPECT_EQ(library_memory(with_library(arrow, "je_arrow_private_je_pages_map", 30)), LibraryMemory::arrow_jemalloc);
  EXPECT_EQ(library_memory(with_library(arrow, "_mi_prim_alloc", 3)), LibraryMemory::little);
  EXPECT_EQ(library_memory(with_library("/v/_polars_runtime.abi3.so", "_rjem_je_pages_map", 30)), LibraryMemory::other);
  EXPECT_EQ(library_memory(with_library("/l/libown.so", "own_map", 30)), LibraryMemory::little);
  EXPECT_EQ(library_memory(RecordingAccount{}), LibraryMemory::little);
}

TEST(CompareText, MemoryThatIsNotSplitHasAColumnWhereThereIsSome) {
  Comparison comparison = comparison_of({contestant("glibc", 100, 50, 1)});
  EXPECT_EQ(render_compare_text(comparison, 200).find("unsplit"), std::string::npos);
  for (RecordedRun& run : comparison.contestants[0].recorded) run.at_peak.unsplit = 7 * kMiB;
  const std::string text = render_compare_text(comparison, 200);
  EXPECT_NE(text.find("retained  unsplit"), std::string::npos) << text;
  EXPECT_NE(text.find("unsplit: of allocators inside libraries"), std::string::npos) << text;
}

}  // namespace
}  // namespace whyrss::compare_test
