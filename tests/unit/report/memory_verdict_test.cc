// Verdicts about files, shared memory, huge pages and imports, and how heaps moved: when they speak, and when not.
#include <gtest/gtest.h>

#include <algorithm>

#include "literal_accounts.h"
#include "model/thread_starts.h"
#include "report/render/accounting_text.h"
#include "report/verdicts/verdict.h"
#include "report/view/build_view.h"
#include "report/view/trend.h"
#include "verdicts_of.h"

namespace whyrss::memory_verdict_test {
namespace {

using literal::kMiB;
using literal::Part;

std::vector<Verdict> verdicts_of(const RecordingAccount& recording, const std::string& id) {
  std::vector<Verdict> found = verdicts_of(recording);
  std::erase_if(found, [&](const Verdict& verdict) { return verdict.id != id; });
  return found;
}

struct Seen {
  double time_s;
  std::vector<Part> parts;
};

ProcessAccount process_of(int pid, const std::vector<Seen>& snapshots) {
  ProcessAccount process = literal::python_process(pid, {"prog"});
  for (const Seen& snapshot : snapshots) process.accounts.push_back(literal::walk(snapshot.time_s, snapshot.parts));
  return process;
}

RecordingAccount recording_of(StackTable stacks, double duration_s, std::vector<ProcessAccount> processes) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, duration_s);
  recording.stacks = std::move(stacks);
  recording.processes = std::move(processes);
  return recording;
}

struct Lines {
  StackTable stacks;
  StackId maps = literal::python_stack(stacks, "/home/u/a.py", 3, "load");
  StackId fills = literal::python_stack(stacks, "/home/u/a.py", 9, "fill");
};

// One process with `file` MiB of a mapped file, of which so many were dirty at the end.
RecordingAccount with_file(const Lines& lines, std::int64_t file, std::int64_t dirty) {
  ProcessAccount process = process_of(10, {{1, {{Cause::file_cache, file, lines.maps, "/data/x.bin"}}}});
  process.dirty_files = {{0.1, {}}, {1.01, {{"/data/x.bin", dirty * kMiB}, {"/data/unmapped", 99 * kMiB}}}};
  return recording_of(lines.stacks, 2, {process});
}

TEST(FileBound, TheCacheOfAFileEndsAtItsSize) {
  const Lines lines;
  RecordingAccount recording = with_file(lines, 100, 0);
  EXPECT_FALSE(verdicts_of(recording)[0].evidence.contains("bound_bytes"));  // a file of a network
  std::vector<FileSizes>& sizes = recording.processes[0].file_sizes;
  sizes = {{.time_s = 0.5, .files = {{"/data/x.bin", {300 * kMiB, 300 * kMiB}}}},
           {.time_s = 1, .files = {{"/data/x.bin", {400 * kMiB, 200 * kMiB}}, {"/data/y.bin", {1, 1}}}},
           {.time_s = 90, .files = {{"/data/x.bin", {500 * kMiB, 500 * kMiB}}}}};
  Verdict verdict = verdicts_of(recording).at(0);
  EXPECT_EQ(verdict.evidence["bound_bytes"], 400 * kMiB);
  EXPECT_EQ(verdict.evidence["resident_bytes"], 100 * kMiB);
  EXPECT_NE(verdict.why.find(" It ends by itself at 400 MiB, the size of x.bin."), std::string::npos) << verdict.why;
  sizes[1].files["/data/x.bin"] = {50 * kMiB, 100 * kMiB};  // mapped twice
  verdict = verdicts_of(recording).at(0);
  EXPECT_EQ(verdict.evidence["bound_bytes"], 100 * kMiB);
  EXPECT_EQ(verdict.evidence["file_bytes"], 50 * kMiB);
  EXPECT_NE(verdict.headline.find("file cache of x.bin, mapped more than once ("), std::string::npos);
  EXPECT_NE(verdict.why.find(" x.bin has 50 MiB. It is mapped more than once, 100 MiB in all (all of that is in memory "
                             "now): a page counts"),
            std::string::npos)
      << verdict.why;
}

// The size of a file is not told where little of it is in memory: it may be any.
TEST(FileBound, OfSeveralFilesOnlyWhereAllAreKnown) {
  const Lines lines;
  RecordingAccount recording = recording_of(
      lines.stacks, 2,
      {process_of(10, {{1, {{Cause::file_cache, 60, lines.maps, "/a"}, {Cause::file_cache, 40, lines.maps, "/b"}}}})});
  recording.processes[0].file_sizes = {{.time_s = 1, .files = {{"/a", {90 * kMiB, 90 * kMiB}}}}};
  EXPECT_FALSE(verdicts_of(recording).at(0).evidence.contains("bound_bytes"));
  recording.processes[0].file_sizes[0].files["/b"] = {50 * kMiB, 50 * kMiB};
  EXPECT_EQ(verdicts_of(recording).at(0).evidence["bound_bytes"], 140 * kMiB);
  recording.processes[0].file_sizes[0].files["/a"] = {30 * kMiB, 90 * kMiB};  // mapped three times
  const std::string why = verdicts_of(recording).at(0).why;
  EXPECT_NE(why.find(" The 2 files have 80 MiB. Some are mapped more than once, 140 MiB in all: a page"),
            std::string::npos)
      << why;
  recording.processes[0].accounts[0] = literal::walk(1, {{Cause::file_cache, 60, lines.maps, "/a"},
                                                         {Cause::file_cache, 0, lines.maps, "/c"},
                                                         {Cause::file_cache, 40, lines.maps, "/b"}});
  recording.processes[0].accounts[0].slices.open()[2].bytes = 4096;
  EXPECT_FALSE(verdicts_of(recording).at(0).evidence.contains("bound_bytes"));
}

TEST(FileLocked, WhatMlockHoldsIsNotCalledReclaimable) {
  const Lines lines;
  RecordingAccount recording = with_file(lines, 100, 0);
  recording.processes[0].dirty_files[1].locked = {{"/data/x.bin", 100 * kMiB}, {"/data/unmapped", 7 * kMiB}};
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "file-cache-growth");
  EXPECT_EQ(verdicts[0].severity, Severity::info);
  EXPECT_EQ(verdicts[0].headline,
            "100 MiB file cache of x.bin (mapped at a.py:3 in load); 100 MiB of it is locked in memory (mlock): the "
            "kernel cannot take that back");
  EXPECT_EQ(verdicts[0].evidence["locked_bytes"], 100 * kMiB);
}

TEST(FileLocked, APartIsReportedBesideTheRest) {
  const Lines lines;
  RecordingAccount recording = with_file(lines, 100, 0);
  recording.processes[0].dirty_files[1].locked = {{"/data/x.bin", 20 * kMiB}};
  const auto verdicts = verdicts_of(recording);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].severity, Severity::ok);
  EXPECT_NE(verdicts[0].headline.find("reclaimable"), std::string::npos);
  EXPECT_NE(verdicts[0].why.find("But 20 MiB of it is locked in memory (mlock)"), std::string::npos);
}

TEST(FileDirty, PagesThatWaitForTheDiskAreReportedInsteadOfReclaimableOnes) {
  const Lines lines;
  const auto verdicts = verdicts_of(with_file(lines, 100, 90));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "file-dirty-growth");
  EXPECT_EQ(verdicts[0].severity, Severity::info);
  EXPECT_EQ(verdicts[0].bytes, 90 * kMiB);
  EXPECT_EQ(verdicts[0].headline,
            "90 MiB of x.bin (mapped at a.py:3 in load) not on disk yet: the kernel writes it back, then it is "
            "reclaimable");
  EXPECT_EQ(verdicts[0].evidence["files"][0]["dirty_bytes"], 90 * kMiB);
  // smaps says nothing of what write() left in the page cache.
  EXPECT_EQ(verdicts[0].why.find("need no writing"), std::string::npos);
  EXPECT_NE(verdicts[0].why.find("10 MiB of other file pages"), std::string::npos) << verdicts[0].why;
}

TEST(FileDirty, APartIsReportedBesideTheRest) {
  const Lines lines;
  const auto verdicts = verdicts_of(with_file(lines, 100, 40));
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].id, "file-cache-growth");
  EXPECT_EQ(verdicts[1].id, "file-dirty-growth");
  EXPECT_EQ(verdicts[0].evidence["dirty_bytes"], 40 * kMiB);
}

TEST(FileDirty, SilentWhenItWasWrittenBack) {
  const Lines lines;
  EXPECT_TRUE(verdicts_of(with_file(lines, 100, 0), "file-dirty-growth").empty());
  RecordingAccount recording = with_file(lines, 100, 90);
  recording.processes[0].dirty_files.push_back({1.5, {}});  // looked again
  EXPECT_TRUE(verdicts_of(recording, "file-dirty-growth").empty());
  EXPECT_EQ(verdicts_of(recording, "file-cache-growth").size(), 1U);
}

TEST(FileDirty, AReadingBelongsToTheWalkBeforeIt) {
  const Lines lines;
  ProcessAccount process = process_of(10, {{0.9, {{Cause::file_cache, 1, lines.maps, "/data/x.bin"}}},
                                           {1, {{Cause::file_cache, 100, lines.maps, "/data/x.bin"}}},
                                           {1.1, {}}});
  process.dirty_files = {{1.01, {{"/data/x.bin", 90 * kMiB}}}, {1.11, {}}};
  const RecordingAccount recording = recording_of(lines.stacks, 2, {process});
  const auto verdicts = find_verdicts(build_view(recording, {0.95, 1.05}));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "file-dirty-growth");
}

// A parent that makes a segment and two workers that read it.
RecordingAccount with_segment(Lines& lines, const std::string& name) {
  const auto part = [&](std::int64_t mib) { return Part{Cause::shared_memory, mib, lines.maps, name, 0}; };
  ProcessAccount site = process_of(10, {{0.5, {}}, {1, {part(60)}}, {3, {part(60)}}});
  for (Account& account : site.accounts)
    for (Slice& slice : account.slices.open()) slice.touched = {{.stack = lines.fills, .bytes = 59 * kMiB}};
  std::vector<ProcessAccount> all{site};
  for (const int pid : {11, 12}) {
    ProcessAccount worker = process_of(pid, {{2, {part(1)}}, {3, {part(60)}}});
    worker.parent = 10;
    worker.born_by_fork = true;
    worker.born_s = 1.9;
    all.push_back(worker);
  }
  return recording_of(lines.stacks, 4, all);
}

TEST(SharedMemory, CountsOnceAndNamesWhoMadeIt) {
  Lines lines;
  const auto verdicts = verdicts_of(with_segment(lines, "/dev/shm/psm_1"));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "shared-memory-growth");
  EXPECT_EQ(verdicts[0].pid, 10);
  EXPECT_EQ(verdicts[0].bytes, 60 * kMiB);
  EXPECT_EQ(verdicts[0].headline,
            "60 MiB shared memory psm_1 (mapped at a.py:3 in load, filled or read at a.py:9 in fill), mapped by 3 "
            "processes and there once");
  EXPECT_NE(verdicts[0].why.find("still has its name"), std::string::npos);
  EXPECT_EQ(verdicts[0].covered_pids, (std::vector<int>{11, 12}));
  EXPECT_EQ(verdicts[0].evidence["processes"][1]["resident_bytes"], 60 * kMiB);
}

TEST(SharedMemory, SaysHowLongItStays) {
  Lines lines;
  const auto lifetime = [&](const std::string& name) {
    return verdicts_of(with_segment(lines, name))[0].evidence["lifetime"].get<std::string>();
  };
  EXPECT_EQ(lifetime("/dev/shm/psm_1"), "named");
  EXPECT_EQ(lifetime("/dev/shm/psm_1 (deleted)"), "unlinked");
  EXPECT_EQ(lifetime("/memfd:ring (deleted)"), "unlinked");
  EXPECT_EQ(lifetime("/dev/zero (deleted)"), "anonymous");
  EXPECT_EQ(lifetime("/SYSV00000000 (deleted)"), "system_v");
}

TEST(SharedMemory, PartsThatWorkersFillEachForItselfAddUp) {
  Lines lines;
  std::vector<ProcessAccount> workers;
  for (const int pid : {11, 12})
    workers.push_back(process_of(pid, {{1, {{Cause::shared_memory, 30, lines.maps, "/dev/shm/x"}}}}));
  const auto verdicts = verdicts_of(recording_of(lines.stacks, 2, workers));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].bytes, 60 * kMiB);
  EXPECT_EQ(verdicts[0].headline,
            "60 MiB shared memory x (mapped at a.py:3 in load), mapped by 2 processes and there once");
}

TEST(SharedMemory, ManySegmentsOfOneLineAreOneVerdict) {
  Lines lines;
  std::vector<Part> parts;
  for (int i = 0; i < 20; ++i) parts.push_back({Cause::shared_memory, 2, lines.maps, "/torch_" + std::to_string(i)});
  const auto verdicts = verdicts_of(recording_of(lines.stacks, 2, {process_of(10, {{1, parts}})}));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].headline, "40 MiB shared memory in 20 segments (mapped at a.py:3 in load)");
  EXPECT_NE(verdicts[0].advice.find("Segments named torch_ are tensors"), std::string::npos) << verdicts[0].advice;
}

// Two processes that lived until 10 s; at the first one files of 10 MiB and more are counted, at the other 80 MiB.
RecordingAccount with_unmapped(const Lines& lines) {
  ProcessAccount main = process_of(10, {{1, {{Cause::heap_live, 20, lines.maps}}}}), child = process_of(11, {});
  main.born_s = child.born_s = 0.1;
  main.ended_s = child.ended_s = 10;
  main.unmapped = {{.time_s = 2, .bytes = 40 * kMiB, .count = 1, .files = {{"/dev/shm/left-10", 40 * kMiB}}},
                   {.time_s = 5, .bytes = 10 * kMiB, .count = 1, .files = {{"/dev/shm/left-10", 10 * kMiB}}}};
  child.unmapped = {{.time_s = 3, .bytes = 80 * kMiB, .count = 1, .files = {{"/memfd:ahead (deleted)", 80 * kMiB}}},
                    {.time_s = 4, .bytes = 0}};
  RecordingAccount recording = recording_of(lines.stacks, 10, {main, child});
  recording.info.capabilities["unmapped_shmem"] = "yes";
  return recording;
}

TEST(SharedMemoryUnmapped, ItsPeakIsSaidWhereItIsGoneAtTheEnd) {
  const Lines lines;
  const RecordingAccount recording = with_unmapped(lines);
  const View view = build_view(recording, {.from_s = 0, .to_s = 10});
  EXPECT_EQ(view.family.unmapped.first, 0);
  EXPECT_EQ(view.family.unmapped.last, 10 * kMiB);
  EXPECT_EQ(view.family.unmapped.peak, 120 * kMiB);
  EXPECT_EQ(view.processes[0].unmapped.last, 10 * kMiB);
  EXPECT_EQ(view.processes[1].unmapped.last, 0);
  RecordingAccount leaving = recording;  // the child unmaps 80 MiB on its way out
  leaving.processes[1].teardown_s = 2.9;
  EXPECT_EQ(build_view(leaving, {.from_s = 0, .to_s = 10}).family.unmapped.peak, 40 * kMiB);
  const auto verdicts = verdicts_of(recording, "shared-memory-unmapped");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(
      verdicts[0].headline,
      "120 MiB shared memory that no process maps, at 3.0 s: memfd ahead (80 MiB), /dev/shm/left-10 (40 MiB); 10 MiB "
      "at the end");
  EXPECT_EQ(verdicts[0].pid, 11);
  EXPECT_EQ(verdicts[0].covered_pids, std::vector{10});
  EXPECT_EQ(verdicts[0].bytes, 120 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["file_count"], 2);
}

TEST(SharedMemoryUnmapped, WhatStaysIsSaidOfTheEnd) {
  const Lines lines;
  RecordingAccount recording = with_unmapped(lines);
  recording.processes[0].unmapped = {
      {.time_s = 2, .bytes = 90 * kMiB, .count = 12, .files = {{"/torch_10_1", 30 * kMiB}}}};
  recording.processes[1].unmapped.clear();
  const auto verdicts = verdicts_of(recording, "shared-memory-unmapped");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].headline,
            "90 MiB shared memory that no process maps in 12 files, the largest /torch_10_1 (30 MiB)");
  EXPECT_NE(verdicts[0].advice.find("prefetch_factor"), std::string::npos);
}

TEST(SharedMemoryUnmapped, TheLineThatMadeItIsNamed) {
  const Lines lines;
  RecordingAccount recording = with_unmapped(lines);
  recording.processes[0].unmapped = {{.time_s = 2,
                                      .bytes = 90 * kMiB,
                                      .count = 1,
                                      .files = {{.name = "/memfd:a", .bytes = 90 * kMiB, .made_at = lines.fills}}}};
  recording.processes[1].unmapped.clear();
  EXPECT_EQ(verdicts_of(recording, "shared-memory-unmapped").at(0).headline,
            "90 MiB shared memory that no process maps (made at a.py:9 in fill): memfd a");
}

// 100 MiB when the interval begins, 110 at its peak, 95 at its end.
TEST(SharedMemoryUnmapped, TheFigureIsItsGrowth) {
  const Lines lines;
  RecordingAccount recording = with_unmapped(lines);
  recording.processes[1].unmapped.clear();
  recording.processes[0].unmapped = {{.time_s = 0.2, .bytes = 100 * kMiB, .count = 1},
                                     {.time_s = 3, .bytes = 110 * kMiB, .count = 1},
                                     {.time_s = 4, .bytes = 95 * kMiB, .count = 1}};
  const std::vector<Verdict> verdicts = find_verdicts(build_view(recording, {.from_s = 1, .to_s = 10}));
  const auto found = std::ranges::find(verdicts, "shared-memory-unmapped", &Verdict::id);
  ASSERT_NE(found, verdicts.end());
  EXPECT_EQ(found->bytes, 10 * kMiB);
  EXPECT_EQ(found->headline, "10 MiB shared memory that no process maps, at 3.0 s; 95 MiB at the end");
}

// A cache that is filled, and mapped afterwards: it counts where it is mapped.
TEST(SharedMemoryUnmapped, WhatIsMappedLaterIsNotSaidTwice) {
  const Lines lines;
  RecordingAccount recording = with_unmapped(lines);
  recording.processes[1].unmapped.clear();
  recording.processes[0].unmapped[1] = {.time_s = 5, .bytes = 0};
  EXPECT_EQ(verdicts_of(recording, "shared-memory-unmapped").size(), 1U);
  recording.processes[0].unmapped[0].files[0].is_mapped_later = true;
  EXPECT_TRUE(verdicts_of(recording, "shared-memory-unmapped").empty());
}

// The collector looks once more when all have ended.
TEST(SharedMemoryUnmapped, WhatIsLeftBehind) {
  const Lines lines;
  RecordingAccount recording = with_unmapped(lines);
  recording.processes[1].unmapped.clear();
  recording.processes[0].unmapped = {
      {.time_s = 2, .bytes = 40 * kMiB, .count = 1, .files = {{"/dev/shm/left", 40 * kMiB}}},
      {.time_s = 5, .bytes = 0}};
  recording.info.left_files = LeftMemory{};
  Verdict verdict = verdicts_of(recording, "shared-memory-unmapped").at(0);
  const std::string file = "40 MiB shared memory that no process maps, at 2.0 s: /dev/shm/left";
  EXPECT_EQ(verdict.headline, file + "; gone at the end");
  EXPECT_EQ(verdict.severity, Severity::info);
  recording.info.left_files = LeftMemory{.count = 1, .bytes = 40 * kMiB, .largest = "/dev/shm/left"};
  verdict = verdicts_of(recording, "shared-memory-unmapped").at(0);
  EXPECT_EQ(verdict.headline, file + "; 40 MiB stay after the end of the job");
  EXPECT_EQ(verdict.severity, Severity::warning);
  EXPECT_TRUE(verdicts_of(recording, "shared-memory-left").empty());
  // It was mapped as long as there was a process.
  recording.processes[0].unmapped.clear();
  EXPECT_EQ(verdicts_of(recording, "shared-memory-left").at(0).headline,
            "40 MiB shared memory left behind, /dev/shm/left: it stays until it is removed");
  EXPECT_EQ(verdicts_of(recording, "shared-memory-left").at(0).pid, std::nullopt);
}

// All killed together: nothing reads a file with a name after the last one; of memory without one is known that it
// goes.
TEST(SharedMemoryUnmapped, WhetherAFileStaysThatNothingReadLaterIsNotKnown) {
  const Lines lines;
  const auto sentence = [&](const char* name, double main_s, double child_s) {
    RecordingAccount recording = with_unmapped(lines);
    recording.processes[0].unmapped.clear();
    recording.processes[1].unmapped = {{.time_s = 2, .bytes = 40 * kMiB, .count = 1, .files = {{name, 40 * kMiB}}}};
    recording.processes[0].ended_s = main_s;
    recording.processes[1].ended_s = child_s;
    recording.info.duration_s = main_s;
    return verdicts_of(recording, "shared-memory-unmapped").at(0).headline;
  };
  const std::string file = "40 MiB shared memory that no process maps, at 2.0 s: /dev/shm/left";
  EXPECT_EQ(sentence("/dev/shm/left", 10, 9.99),
            file + "; whether 40 MiB of it stayed is not known: no process lived on to be read with it");
  EXPECT_EQ(sentence("/dev/shm/left", 10, 9), file + "; gone at the end");
  EXPECT_EQ(sentence("/memfd:left", 10, 9.99),
            "40 MiB shared memory that no process maps, at 2.0 s: memfd left; gone at "
            "the end");
}

TEST(SharedMemoryUnmapped, LittleOrUnknownIsNotNamed) {
  const Lines lines;
  RecordingAccount recording = with_unmapped(lines);
  recording.processes[0].unmapped = {{.time_s = 2, .bytes = 7 * kMiB, .count = 1}};
  recording.processes[1].unmapped.clear();
  EXPECT_TRUE(verdicts_of(recording, "shared-memory-unmapped").empty());
  recording.processes[0].unmapped = {{.time_s = 2, .bytes = std::nullopt}};
  EXPECT_FALSE(build_view(recording, {.from_s = 0, .to_s = 10}).family.unmapped.last);
  recording = with_unmapped(lines);
  recording.info.capabilities.erase("unmapped_shmem");  // recorded before it was read
  EXPECT_TRUE(verdicts_of(recording, "shared-memory-unmapped").empty());
  EXPECT_FALSE(build_view(recording, {.from_s = 0, .to_s = 10}).family.unmapped.peak);
}

// Mapped by a line for an allocator of a library, of which nothing says what is live.
RecordingAccount with_allocators(std::int64_t arrow_mib, std::int64_t own_mib) {
  const Lines lines;
  StackTable stacks = lines.stacks;
  const auto mapped_in = [&](const char* function, const char* library) {
    Frame frame;
    frame.function = function;
    frame.module = stacks.intern(Module{library, "id"});
    const FrameId user =
        stacks.intern(Frame{.kind = FrameKind::python, .function = "load", .file = "/home/u/a.py", .line = 3});
    return stacks.intern({stacks.intern(frame), user});
  };
  const StackId arrow = mapped_in("_mi_prim_alloc", "/v/pyarrow/libarrow.so.2600"),
                own = mapped_in("je_pages_map", "/l/libown.so");
  return recording_of(
      stacks, 2,
      {process_of(10,
                  {{0.1, {}}, {1, {{Cause::heap_unsplit, arrow_mib, arrow}, {Cause::heap_unsplit, own_mib, own}}}})});
}

TEST(AllocatorGrowth, EachAllocatorIsNamedWithItsLineAndRemedy) {
  const auto verdicts = verdicts_of(with_allocators(300, 100), "allocator-growth");
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].headline,
            "300 MiB of Arrow's memory pool (mimalloc), in use or free is not known (mapped at a.py:3 in load)");
  EXPECT_NE(verdicts[0].advice.find("release_unused()"), std::string::npos);
  EXPECT_EQ(verdicts[0].evidence["library"], "/v/pyarrow/libarrow.so.2600");
  EXPECT_EQ(verdicts[0].evidence["growth_bytes"], 400 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["allocator_growth_bytes"], 300 * kMiB);
  EXPECT_EQ(verdicts[1].headline,
            "100 MiB of the allocator in libown.so (jemalloc), in use or free is not known (mapped at a.py:3 in load)");
  EXPECT_NE(verdicts[1].advice.find("dirty_decay_ms:0"), std::string::npos);
  EXPECT_NE(verdicts[1].why.find("libown.so"), std::string::npos);
}

TEST(HeapRetained, WhatALibrarysAllocatorKeepsIsNotMallocs) {
  const Lines lines;
  StackTable stacks = lines.stacks;
  Frame serving;
  serving.function = "arrow_mi_malloc_aligned";
  serving.module = stacks.intern(Module{"/v/pyarrow/libarrow.so.2600", "id"});
  const StackId arrow = stacks.intern({stacks.intern(serving), stacks[lines.maps].back()});
  const RecordingAccount recording = recording_of(
      stacks, 2,
      {process_of(10,
                  {{0.1, {}}, {1, {{Cause::heap_retained, 300, arrow}, {Cause::heap_retained, 100, lines.maps}}}})});
  const auto verdicts = verdicts_of(recording, "heap-retained");
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].headline,
            "300 MiB freed, but kept by Arrow's memory pool (mimalloc) (last allocated at a.py:3 in load): not a leak, "
            "and not reclaimable by the kernel");
  EXPECT_NE(verdicts[0].advice.find("release_unused()"), std::string::npos);
  EXPECT_EQ(verdicts[0].severity, Severity::warning);
  EXPECT_EQ(verdicts[0].evidence["growth_bytes"], 400 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["allocator_growth_bytes"], 300 * kMiB);
  EXPECT_EQ(verdicts[1].bytes, 100 * kMiB);
  EXPECT_EQ(verdicts[1].severity, Severity::info);
  EXPECT_EQ(verdicts[1].evidence["growth_bytes"], 400 * kMiB);
}

TEST(AllocatorGrowth, LittleIsNotNamed) {
  EXPECT_EQ(verdicts_of(with_allocators(300, 3), "allocator-growth").size(), 1U);
  EXPECT_TRUE(verdicts_of(with_allocators(3, 3), "allocator-growth").empty());
}

TEST(AllocatorGrowth, WhatIsGoneAtTheEndHasItsName) {
  RecordingAccount recording = with_allocators(300, 3);
  recording.processes[0].accounts.push_back(literal::walk(1.5, {}));
  const auto verdicts = verdicts_of(recording, "gone-since-peak");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].headline,
            "303 MiB of Arrow's memory pool (mimalloc) gone since the peak of 303 MiB RSS (mapped at a.py:3 in "
            "load)");
}

TEST(SharedMemory, MappingWhatIsThereIsNoNewMemory) {
  Lines lines;
  const RecordingAccount recording = with_segment(lines, "/dev/shm/psm_1");
  const auto verdicts = find_verdicts(build_view(recording, {1.5, 4}));
  ASSERT_EQ(verdicts.size(), 2U);
  for (const Verdict& verdict : verdicts) {
    EXPECT_EQ(verdict.severity, Severity::ok);
    EXPECT_EQ(verdict.headline, "60 MiB shared memory that another process had already: no new memory");
  }
}

RecordingAccount with_huge_pages(const Lines& lines, std::int64_t mib, std::int64_t zeros_mib) {
  ProcessAccount process =
      process_of(10, {{1, {{Cause::heap_live, mib, lines.maps}}}, {1.5, {{Cause::heap_live, mib, lines.maps}}}});
  process.accounts[0].has_huge = true;
  process.accounts[0].slices.open()[0].huge_bytes = zeros_mib * kMiB;
  return recording_of(lines.stacks, 2, {process});
}

TEST(HugePages, ZerosBesideWhatIsUsedAreReported) {
  const Lines lines;
  const auto verdicts = verdicts_of(with_huge_pages(lines, 64, 60), "huge-page-padding");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].bytes, 60 * kMiB);
  EXPECT_EQ(
      verdicts[0].headline,
      "60 MiB of 64 MiB are unused parts of 2 MiB pages (made at a.py:3 in load): zeros, resident only for the size of "
      "those pages");
}

// Why it is there comes before who allocated it, where it is most of it.
TEST(HugePages, StandBeforeWhatTheyExplain) {
  const Lines lines;
  const auto ids = [&](std::int64_t zeros_mib) {
    const RecordingAccount recording = with_huge_pages(lines, 64, zeros_mib);
    std::vector<std::string> found;
    for (const Verdict& verdict : find_verdicts(build_view(recording, whole_life(recording))))
      found.push_back(verdict.id);
    return found;
  };
  EXPECT_EQ(ids(60), (std::vector<std::string>{"huge-page-padding", "heap-growth"}));
  EXPECT_EQ(ids(40), (std::vector<std::string>{"heap-growth", "huge-page-padding"}));
}

TEST(HugePages, AllocatorInALibraryIsNamed) {
  RecordingAccount recording = with_allocators(300, 0);
  Account& last = recording.processes[0].accounts.back();
  last.has_huge = true;
  last.slices.open()[0].huge_bytes = 70 * kMiB;
  const auto verdicts = verdicts_of(recording, "huge-page-padding");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].headline,
            "70 MiB of 300 MiB of Arrow's memory pool (mimalloc) are unused parts of 2 MiB pages (made at a.py:3 in "
            "load): zeros, resident only for the size of those pages");
}

TEST(HugePages, SilentWhereTheyAreFull) {
  const Lines lines;
  EXPECT_TRUE(verdicts_of(with_huge_pages(lines, 640, 6), "huge-page-padding").empty());
  RecordingAccount never_inspected = with_huge_pages(lines, 64, 60);
  never_inspected.processes[0].accounts[0].has_huge = false;
  EXPECT_TRUE(verdicts_of(never_inspected, "huge-page-padding").empty());
}

// Innermost first.
StackId import_stack(StackTable& stacks, const std::vector<std::pair<std::string, int>>& frames) {
  std::vector<FrameId> ids;
  for (const auto& [file, line] : frames)
    ids.push_back(stacks.intern(Frame{.kind = FrameKind::python, .function = "<module>", .file = file, .line = line}));
  return stacks.intern(ids);
}

const std::pair<std::string, int> kImporter{"<frozen importlib._bootstrap>", 241}, kRunner{"<frozen runpy>", 88},
    kSpawn{"/usr/lib/python3.11/multiprocessing/spawn.py", 287}, kMain{"/home/u/job.py", 4},
    kTorch{"/usr/lib/python3/dist-packages/torch/__init__.py", 29};

// Workers of parent 10 that hold these parts.
RecordingAccount with_workers(StackTable stacks, int count, const std::vector<Part>& parts, bool born_by_fork) {
  std::vector<ProcessAccount> all{process_of(10, {{1, {{Cause::heap_live, 4}}}})};
  for (int i = 0; i < count; ++i) {
    all.push_back(process_of(11 + i, {{2, parts}}));
    all.back().parent = 10;
    all.back().born_by_fork = born_by_fork;
    all.back().born_s = 1;
  }
  return recording_of(std::move(stacks), 3, all);
}

TEST(Imports, WorkersThatImportTheSameAreReported) {
  StackTable stacks;
  const StackId inner =
      import_stack(stacks, {{"/x/numpy/core/a.py", 5}, kImporter, kTorch, kImporter, kMain, kRunner, kSpawn});
  const StackId own = import_stack(stacks, {kMain, kRunner, kSpawn});
  const auto verdicts =
      verdicts_of(with_workers(stacks, 4, {{Cause::heap_live, 90, inner}, {Cause::heap_live, 6, own}}, false),
                  "per-process-import");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].severity, Severity::warning);
  EXPECT_EQ(verdicts[0].pid, 10);
  EXPECT_EQ(verdicts[0].headline,
            "4 workers import the same modules each for itself (torch, imported at job.py:4 in <module>): 96 MiB each, "
            "384 MiB together");
  EXPECT_NE(verdicts[0].advice.find("set_forkserver_preload"), std::string::npos);
  EXPECT_EQ(verdicts[0].evidence["modules"][1]["module"], "job");
}

TEST(Imports, AfterAForkTheRemedyIsToImportBefore) {
  StackTable stacks;
  const StackId stack = import_stack(stacks, {{"/home/u/tables.py", 2}, kImporter, kMain, kSpawn});
  const auto verdicts =
      verdicts_of(with_workers(stacks, 2, {{Cause::heap_live, 20, stack}}, true), "per-process-import");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_NE(verdicts[0].headline.find("(tables, imported at job.py:4"), std::string::npos);
  EXPECT_NE(verdicts[0].advice.find("before the workers are forked"), std::string::npos);
}

// The parent runs a module (`python3 -m`): a forked worker's stacks go on with those of its parent.
TEST(Imports, TheParentsRunnerBelowAForkImportsNothing) {
  StackTable stacks;
  const std::pair<std::string, int> begins{"/usr/lib/python3.11/multiprocessing/process.py", 314};
  const auto after_fork = [&](const std::vector<std::pair<std::string, int>>& inner) {
    std::vector<FrameId> ids;
    for (const auto& part : {inner, {begins, kMain, kRunner}})
      for (const auto& [file, line] : part)
        ids.push_back(stacks.intern(Frame{.kind = FrameKind::python,
                                          .function = file == begins.first ? "_bootstrap" : "<module>",
                                          .file = file,
                                          .line = line}));
    return stacks.intern(ids);
  };
  const StackId worked = after_fork({{"/home/u/work.py", 40}});
  const StackId imported = after_fork({kTorch, kImporter, {"/home/u/work.py", 41}});
  EXPECT_TRUE(
      verdicts_of(with_workers(stacks, 2, {{Cause::heap_live, 90, worked}}, true), "per-process-import").empty());
  const auto verdicts =
      verdicts_of(with_workers(stacks, 2, {{Cause::heap_live, 90, worked}, {Cause::heap_live, 40, imported}}, true),
                  "per-process-import");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_NE(verdicts[0].headline.find("(torch, imported at work.py:41 in <module>): 40 MiB each"), std::string::npos)
      << verdicts[0].headline;
}

TEST(Imports, WorkersOfJoblibHaveNoStartMethod) {
  StackTable stacks;
  const StackId stack = import_stack(stacks, {kTorch, kImporter, kMain, kSpawn});
  RecordingAccount recording = with_workers(stacks, 2, {{Cause::heap_live, 20, stack}}, false);
  for (ProcessAccount& process : recording.processes)
    process.command = {"python3", "-m", "joblib.externals.loky.backend.popen_loky_posix"};
  const auto verdicts = verdicts_of(recording, "per-process-import");
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_NE(verdicts[0].advice.find("joblib.parallel_config"), std::string::npos);
  EXPECT_EQ(verdicts[0].advice.find("forkserver"), std::string::npos);
}

TEST(Imports, SilentForOneWorkerForSharedOnesAndForWork) {
  StackTable stacks;
  const StackId imported = import_stack(stacks, {kTorch, kImporter, kMain, kRunner, kSpawn});
  const StackId worked = import_stack(stacks, {{"/home/u/job.py", 40}, kSpawn});
  const StackId alone = import_stack(stacks, {kTorch, kImporter, kMain});
  for (const RecordingAccount& recording :
       {with_workers(stacks, 1, {{Cause::heap_live, 90, imported}}, false),
        with_workers(stacks, 4, {{Cause::fork_shared, 90, imported, "", 0}}, true),
        with_workers(stacks, 4, {{Cause::heap_live, 90, worked}}, false),
        with_workers(stacks, 4, {{Cause::heap_live, 90, alone}}, false),
        with_workers(stacks, 4, {{Cause::heap_live, 5, imported}, {Cause::heap_live, 90, worked}}, false)})
    EXPECT_TRUE(verdicts_of(recording, "per-process-import").empty());
}

TEST(KeptWhere, ALineIsNamedAloneOnlyForNearlyAll) {
  const Lines lines;
  const auto headline = [&](std::int64_t mapped, std::int64_t filled) {
    const std::vector<Part> parts{{Cause::anonymous, mapped, lines.maps}, {Cause::anonymous, filled, lines.fills}};
    return verdicts_of(recording_of(lines.stacks, 2, {process_of(10, {{1, parts}})}))[0].headline;
  };
  EXPECT_EQ(headline(97, 3), "100 MiB anonymous mappings (mapped at a.py:3 in load)");
  EXPECT_EQ(headline(90, 10), "100 MiB anonymous mappings (most mapped at a.py:3 in load: 90 MiB)");
  EXPECT_EQ(headline(51, 49),
            "100 MiB anonymous mappings (most mapped at a.py:3 in load: 51 MiB, 49 MiB at a.py:9 in fill)");
  EXPECT_EQ(headline(50, 50),
            "100 MiB anonymous mappings (50 MiB of it mapped at a.py:3 in load, 50 MiB at a.py:9 in fill)");
}

TEST(KeptWhere, WhereTheLinesNamedHaveLessThanHalfTheOthersAreCounted) {
  StackTable stacks;
  const auto headline = [&](std::initializer_list<std::int64_t> mib) {
    std::vector<Part> parts;
    for (const std::int64_t each : mib)
      parts.push_back(
          {Cause::anonymous, each, literal::python_stack(stacks, "a.py", static_cast<int>(parts.size()) + 1, "load")});
    return verdicts_of(recording_of(stacks, 2, {process_of(10, {{1, parts}})}))[0].headline;
  };
  EXPECT_EQ(headline({28, 18, 18, 18, 18}),
            "100 MiB anonymous mappings (28 MiB of it mapped at a.py:1 in load, 72 MiB at 4 other lines)");
  EXPECT_EQ(headline({25, 24, 17, 17, 17}),
            "100 MiB anonymous mappings (25 MiB of it mapped at a.py:1 in load, 24 MiB "
            "at a.py:2 in load, 51 MiB at 3 other lines)");
  EXPECT_EQ(headline({30, 30, 14, 13, 13}),
            "100 MiB anonymous mappings (30 MiB of it mapped at a.py:1 in load, 30 MiB at a.py:2 in load)");
}

TEST(KeptWhere, ASecondLineSaysThatAThreadStartedThereDidIt) {
  StackTable stacks;
  const StackId query = literal::python_stack(stacks, "a.py", 6, "query");
  const StackId connect = literal::python_stack(stacks, "a.py", 9, "main");
  const StackId worker = in_thread_of(stacks, literal::native_stack(stacks, {{"work", "/l/libdb.so"}}), connect);
  const std::vector<Part> parts{{Cause::anonymous, 60, query}, {Cause::anonymous, 40, worker}};
  EXPECT_EQ(verdicts_of(recording_of(stacks, 2, {process_of(10, {{1, parts}})}))[0].headline,
            "100 MiB anonymous mappings (most mapped at a.py:6 in query: 60 MiB, 40 MiB by a thread that "
            "a.py:9 in main started)");
}

// Of one line, which itself and by a thread asks for much.
TEST(KeptWhere, WhatThreadsOfALineMadeIsSaidBesideWhatItMadeItself) {
  StackTable stacks;
  const StackId line = literal::python_stack(stacks, "a.py", 6, "query");
  const StackId worker = in_thread_of(stacks, literal::native_stack(stacks, {{"work", "/l/libdb.so"}}), line);
  const auto headline = [&](std::int64_t itself, std::int64_t thread) {
    const std::vector<Part> parts{{Cause::anonymous, itself, line}, {Cause::anonymous, thread, worker}};
    return verdicts_of(recording_of(stacks, 2, {process_of(10, {{1, parts}})}))[0].headline;
  };
  EXPECT_EQ(headline(60, 40),
            "100 MiB anonymous mappings (mapped at a.py:6 in query, 40 MiB of it by a thread that it started)");
  EXPECT_EQ(headline(40, 60),
            "100 MiB anonymous mappings (mapped by a thread that a.py:6 in query started, 40 MiB of it by the line "
            "itself)");
  EXPECT_EQ(headline(85, 15), "100 MiB anonymous mappings (mapped at a.py:6 in query)");
}

TEST(CauseGrowth, FewPagesOfLibrariesAreNoneOfTheFilesThatWereWritten) {
  StackTable stacks;
  const StackId line = literal::python_stack(stacks, "a.py", 6, "load");
  const auto headline = [&](std::int64_t of_library) {
    const std::vector<Part> parts{{Cause::file_cow, 38, line, "/data/a.npy"},
                                  {Cause::file_cow, of_library, kEmptyStack, "/lib/libx.so.6"}};
    return verdicts_of(recording_of(stacks, 2, {process_of(10, {{1, parts}})}))[0].headline;
  };
  EXPECT_EQ(headline(2), "38 MiB private copies of file pages (mapped at a.py:6 in load)");
  EXPECT_EQ(headline(9).substr(0, 6), "47 MiB");
}

// A program that frees while its RSS is largest: the allocator has not given it back yet.
TEST(GoneSincePeak, WhatWasFreedAtThePeakIsShownAsItWasBefore) {
  StackTable stacks;
  const StackId table = literal::python_stack(stacks, "a.py", 3, "load");
  const auto at_peak = [&](std::int64_t before_mib) {
    const ProcessAccount process = process_of(10, {{1, {{Cause::heap_live, before_mib, table}}},
                                                   {2, {{Cause::heap_live, 10}, {Cause::heap_retained, 300, table}}},
                                                   {3, {{Cause::heap_live, 10}}}});
    const Verdict gone = verdicts_of(recording_of(stacks, 9, {process}), "gone-since-peak").at(0);
    return std::pair(gone.headline, gone.advice);
  };
  EXPECT_EQ(at_peak(305).second, "If the peak is the trouble (a memory limit), make this line hold less at a time.");
  EXPECT_EQ(at_peak(305).first,
            "295 MiB live Python objects gone since 305 MiB RSS, near its peak of 310 MiB (made at a.py:3 "
            "in load)");
  EXPECT_EQ(at_peak(200).first,
            "300 MiB heap kept by the allocator gone since the peak of 310 MiB RSS (last allocated at a.py:3 "
            "in load)");
}

// What one line freed counts as a whole, though another one has made as much since.
TEST(GoneSincePeak, WhatOtherLinesReplacedIsGoneAsAWhole) {
  StackTable stacks;
  const StackId features = literal::python_stack(stacks, "a.py", 3, "features");
  const StackId index = literal::python_stack(stacks, "a.py", 4, "index");
  bool estimated_peak = false;
  const auto gone = [&](std::int64_t later_mib) {
    ProcessAccount process =
        process_of(10, {{1, {{Cause::heap_live, 200, features}}}, {2, {{Cause::heap_live, later_mib, index}}}});
    if (estimated_peak) process.accounts[0].estimated_from_s = 0.5;
    return verdicts_of(recording_of(stacks, 9, {process}), "gone-since-peak").at(0);
  };
  EXPECT_EQ(
      gone(180).headline,
      "200 MiB live Python objects gone since the peak of 200 MiB RSS (made at a.py:3 in features), while 180 MiB "
      "came at other lines");
  EXPECT_EQ(gone(180).bytes, 200 * kMiB);
  EXPECT_EQ(gone(180).why,
            "The memory was there when RSS was largest and has been freed since, so it is no leak. RSS fell by 20 MiB "
            "only, as other memory came.");
  EXPECT_EQ(gone(10).headline,
            "190 MiB live Python objects gone since the peak of 200 MiB RSS (made at a.py:3 in features)");
  estimated_peak = true;
  EXPECT_EQ(gone(180).headline,
            "about 200 MiB live Python objects gone since the peak of 200 MiB RSS (made at a.py:3 in features), while "
            "180 MiB came at other lines");
}

TEST(GoneSincePeak, WavesAreCounted) {
  const Lines lines;
  std::vector<Seen> walks;
  for (int second = 1; second <= 6; ++second) walks.push_back({1. * second, {{Cause::heap_live, 2, lines.fills}}});
  const auto why = [&] {
    return verdicts_of(recording_of(lines.stacks, 7, {process_of(10, walks)}), "gone-since-peak").at(0).why;
  };
  walks[1].parts[0].mib = 42;
  EXPECT_EQ(why().find("came and went"), std::string::npos);
  walks[3].parts[0].mib = 40;
  EXPECT_NE(why().find(" It came and went 2 times."), std::string::npos);
}

TEST(KeptWhere, OtherThreadsWhileALineRan) {
  StackTable stacks;
  const auto meanwhile = [&](const char* function, int line) {
    const StackId native = literal::native_stack(stacks, {{"grow", "/l/libdb.so"}});
    std::vector<FrameId> frames = stacks[native];
    frames.push_back(waiter_frame(stacks));
    for (const FrameId frame : stacks[literal::python_stack(stacks, "a.py", line, function)]) frames.push_back(frame);
    return stacks.intern(frames);
  };
  const auto headline = [&](std::int64_t first, std::int64_t second) {
    const std::vector<Part> parts{{Cause::anonymous, first, meanwhile("load", 3)},
                                  {Cause::anonymous, second, meanwhile("fill", 9)}};
    return verdicts_of(recording_of(stacks, 2, {process_of(10, {{1, parts}})}))[0].headline;
  };
  EXPECT_EQ(headline(97, 3), "100 MiB anonymous mappings (mapped while a.py:3 in load ran)");
  EXPECT_EQ(
      headline(60, 40),
      "100 MiB anonymous mappings (most mapped while a.py:3 in load ran: 60 MiB, 40 MiB while a.py:9 in fill ran)");
}

TEST(KeptWhere, FilesOfOneNameAreToldApartByTheirFolders) {
  StackTable stacks;
  const StackId first = literal::python_stack(stacks, "/home/u/a/model.py", 1, "make");
  const StackId second = literal::python_stack(stacks, "/home/u/b/model.py", 1, "make");
  const std::vector<Part> parts{{Cause::anonymous, 60, first}, {Cause::anonymous, 40, second}};
  EXPECT_EQ(verdicts_of(recording_of(stacks, 2, {process_of(10, {{1, parts}})}))[0].headline,
            "100 MiB anonymous mappings (most mapped at a/model.py:1 in make: 60 MiB, 40 MiB at b/model.py:1 in make)");
}

// A process of which these MiB of live heap were seen at equal distances.
RecordingAccount with_heap(const Lines& lines, double duration_s, const std::vector<std::int64_t>& mib) {
  std::vector<Seen> snapshots;
  for (std::size_t i = 0; i < mib.size(); ++i)
    snapshots.push_back({duration_s * static_cast<double>(i) / static_cast<double>(mib.size() - 1),
                         {{Cause::heap_live, mib[i], lines.maps}}});
  return recording_of(lines.stacks, duration_s, {process_of(10, snapshots)});
}

std::string heap_headline(const RecordingAccount& recording) {
  const auto verdicts = verdicts_of(recording, "heap-growth");
  return verdicts.empty() ? "" : std::string(slug(verdicts[0].severity)) + ": " + verdicts[0].headline;
}

constexpr const char* kObjects = " live Python objects (made at a.py:3 in load)";

TEST(Trends, ACacheThatIsFullIsNoLeak) {
  const Lines lines;
  const RecordingAccount recording = with_heap(lines, 10, {5, 40, 80, 100, 101, 99, 100, 100, 101, 100, 100});
  EXPECT_EQ(heap_headline(recording), std::string("info: 95 MiB") + kObjects + ", flat since 3.0 s");
  EXPECT_NE(verdicts_of(recording)[0].advice.find("If its work went on, no leak as far as this recording goes"),
            std::string::npos);
  EXPECT_EQ(verdicts_of(recording)[0].evidence["trend"]["kind"], "flat");
}

TEST(Trends, ATableThatWasCopiedIsNoGrowth) {
  const Lines lines;
  EXPECT_EQ(heap_headline(with_heap(lines, 10, {5, 40, 80, 100, 100, 112, 100, 100, 112, 100, 100})),
            std::string("info: 95 MiB") + kObjects + ", flat since 3.0 s");
}

TEST(Trends, ASawtoothComesAndGoes) {
  const Lines lines;
  EXPECT_EQ(heap_headline(with_heap(lines, 10, {5, 60, 105, 10, 50, 105, 5, 60, 100, 10, 105})),
            std::string("info: 100 MiB") + kObjects + ", comes and goes");
  // The last of them was kept.
  EXPECT_EQ(heap_headline(with_heap(lines, 10, {5, 105, 10, 105, 10, 105, 10, 105, 105, 105, 105})),
            std::string("info: 100 MiB") + kObjects + ", flat since 7.0 s");
  EXPECT_EQ(heap_headline(with_heap(lines, 10, {5, 105, 105, 105, 10, 105, 105, 10, 105, 105, 105})),
            std::string("info: 100 MiB") + kObjects + ", comes and goes");
  // One that ends low has not grown.
  const RecordingAccount low = with_heap(lines, 10, {5, 60, 105, 10, 50, 105, 5, 60, 100, 10, 6});
  EXPECT_EQ(heap_headline(low), "");
  EXPECT_EQ(verdicts_of(low)[0].id, "gone-since-peak");
}

// 428 MiB of a file were there at the peak, and 374 MiB of others came after it: RSS fell by 54.
TEST(GoneSincePeak, ComesBeforeWhatIsThereOnlyWhereItIsMoreThanTwiceAsMuch) {
  StackTable stacks;
  const StackId kept = literal::python_stack(stacks, "a.py", 3, "load");
  const StackId freed = literal::python_stack(stacks, "a.py", 9, "work");
  const auto first = [&](std::int64_t gone_mib) {
    const ProcessAccount process =
        process_of(10, {{1, {{Cause::heap_live, 100, kept}, {Cause::anonymous, gone_mib, freed}}},
                        {2, {{Cause::heap_live, 100, kept}}},
                        {3, {{Cause::heap_live, 100, kept}}}});
    return verdicts_of(recording_of(stacks, 9, {process})).at(0).id;
  };
  EXPECT_EQ(first(190), "heap-growth");
  EXPECT_EQ(first(210), "gone-since-peak");
}

TEST(GoneSincePeak, IsNoMoreThanRssFellBy) {
  const Lines lines;
  RecordingAccount recording = recording_of(
      lines.stacks, 4,
      {process_of(10, {{1, {{Cause::file_cache, 428, lines.maps, "/a"}, {Cause::anonymous, 202, lines.maps}}},
                       {3, {{Cause::anonymous, 576, lines.maps}}}})});
  const Verdict walked = verdicts_of(recording, "gone-since-peak").at(0);
  EXPECT_EQ(walked.headline,
            "54 MiB less than at the peak of 630 MiB RSS: 428 MiB less file cache of a (mapped at a.py:3 in load), "
            "while other memory grew");
  EXPECT_EQ(walked.bytes, 54 * kMiB);
  recording.processes[0].accounts[0].slices.open()[0].touched = {{.stack = lines.fills, .bytes = 428 * kMiB}};
  EXPECT_NE(verdicts_of(recording, "gone-since-peak").at(0).headline.find("(mapped at a.py:3 in load, read at a.py:9"),
            std::string::npos);
  // Of an estimate no more is certain than how RSS fell.
  recording.processes[0].accounts[0].estimated_from_s = 0.5;
  EXPECT_EQ(verdicts_of(recording, "gone-since-peak").at(0).headline,
            "54 MiB file cache of a gone since the peak of 630 MiB RSS (mapped at a.py:3 in load, read at a.py:9 "
            "in fill)");
  // What was mapped for writing may have been written.
  recording.processes[0].file_sizes = {{.time_s = 1, .files = {{"/a", {.is_writable = true}}}}};
  EXPECT_NE(verdicts_of(recording, "gone-since-peak").at(0).headline.find(", touched at a.py:9"), std::string::npos);
}

TEST(Trends, ASawtoothThatClimbsStillGrows) {
  const Lines lines;
  EXPECT_EQ(heap_headline(with_heap(lines, 12, {5, 80, 20, 120, 50, 150, 90, 180, 120, 210, 150, 240, 190})),
            std::string("info: 185 MiB") + kObjects + ", still growing at the end by 18 MiB/s");
}

TEST(Trends, EvenGrowthForOverAMinuteIsAWarning) {
  const Lines lines;
  std::vector<std::int64_t> even, late;
  for (int i = 0; i <= 20; ++i) {
    even.push_back(10 + 10 * i);
    late.push_back(i < 14 ? 10 : 10 + 30 * (i - 13));
  }
  EXPECT_EQ(heap_headline(with_heap(lines, 100, even)),
            std::string("warning: 200 MiB") + kObjects + ", still growing at the end by 2.0 MiB/s");
  EXPECT_EQ(heap_headline(with_heap(lines, 40, even)).rfind("info: ", 0), 0U);
  EXPECT_EQ(heap_headline(with_heap(lines, 100, late)).rfind("info: ", 0), 0U);
}

TEST(Trends, ShortProgramsAndFewWalksAreNotJudged) {
  const Lines lines;
  for (const auto& recording : {with_heap(lines, 3, {5, 30, 60, 90, 120}), with_heap(lines, 100, {5, 100, 100})})
    EXPECT_EQ(heap_headline(recording).find(','), std::string::npos);
}

TEST(Steady, AWarmUpBeforeTheIntervalIsNoGrowth) {
  const Lines lines;
  const RecordingAccount recording = with_heap(lines, 10, {5, 40, 80, 100, 101, 99, 100, 100, 101, 100, 100});
  const auto verdicts = find_verdicts(build_view(recording, {4, 10}));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].id, "steady");
  EXPECT_EQ(verdicts[0].severity, Severity::ok);
}

// Two processes that share 80 MiB of a file and 10 MiB of shared memory, read at 1 s.
RecordingAccount two_readers() {
  std::vector<ProcessAccount> processes;
  for (const int pid : {10, 11}) {
    ProcessAccount process = process_of(pid, {{1, {{Cause::file_cache, 100}}}});
    KernelTotals totals = literal::totals(1, 110, 65, 20);
    totals.anonymous_bytes = 20 * kMiB;
    totals.pss_anonymous_bytes = 20 * kMiB;
    totals.pss_file_bytes = 40 * kMiB;
    totals.pss_shmem_bytes = 5 * kMiB;
    process.totals = {literal::totals(0.1, 10, 5, 1), totals, literal::totals(1.9, 109, 60, 20)};
    processes.push_back(process);
  }
  RecordingAccount recording = recording_of({}, 2, processes);
  recording.info.memory_total_bytes = 1100 * kMiB;
  CgroupReading reading;
  reading.time_s = 0.9;
  reading.usage_bytes = 150 * kMiB;
  reading.anon_bytes = 41 * kMiB;
  reading.shmem_bytes = 10 * kMiB;
  reading.file_bytes = 80 * kMiB;
  recording.info.cgroup.emplace();
  recording.info.cgroup->readings = {reading};
  return recording;
}

TEST(Accounting, WhatEachToolWouldHaveShown) {
  const RecordingAccount recording = two_readers();
  const auto json = accounting_json(build_view(recording, whole_life(recording)))["at_peak"];
  EXPECT_EQ(json["time_s"], 1);
  EXPECT_EQ(json["rss_sum"], 220 * kMiB);
  EXPECT_DOUBLE_EQ(json["memory_percent_sum"].get<double>(), 20);
  EXPECT_EQ(json["shared_sum"], 180 * kMiB);
  EXPECT_EQ(json["rss_less_shared"], 40 * kMiB);
  EXPECT_EQ(json["uss_sum"], 40 * kMiB);
  EXPECT_EQ(json["pss_sum"], 130 * kMiB);
  EXPECT_EQ(json["pss_file"], 80 * kMiB);
  EXPECT_EQ(json["pss_shared_memory"], 10 * kMiB);
  EXPECT_EQ(json["pss_anonymous"], 40 * kMiB);
  EXPECT_EQ(json["cgroup_usage"], 150 * kMiB);
  EXPECT_EQ(json["cgroup_held"], 51 * kMiB);
  EXPECT_EQ(json["processes"][1]["pid"], 11);
  EXPECT_EQ(json["processes"][1]["shared"], 90 * kMiB);
}

TEST(Accounting, TheTablesHoldTheSameFigures) {
  const RecordingAccount recording = two_readers();
  const View view = build_view(recording, whole_life(recording));
  EXPECT_NE(accounting_title(view).find("at 1.0 s"), std::string::npos);
  const std::string text = accounting_table(view).text();
  for (const char* row : {"Slurm by default", " 220.0 ", "20.0 %", "Slurm NoShared", "UsePss", "  pages of files"})
    EXPECT_NE(text.find(row), std::string::npos) << row << "\n" << text;
  const std::string processes = accounting_process_table(view, 1).text();
  EXPECT_NE(processes.find("1 more     110.0  10.0 %"), std::string::npos) << processes;
}

// A walk right after a poll finds one that has given its memory back since: polled together both were larger.
TEST(Accounting, WhatWasReadWhenRssHadFallenIsNotThePeak) {
  RecordingAccount recording = two_readers();
  for (ProcessAccount& process : recording.processes) {
    process.polls = {{.time_s = 0.9, .rss_bytes = 110 * kMiB, .shared_bytes = 90 * kMiB}};
    process.totals = {literal::totals(0.1, 10, 5, 1), literal::totals(1.9, 110, 60, 20)};
  }
  recording.processes[0].totals.back() = literal::totals(1.91, 10, 9, 5);
  const auto json = accounting_json(build_view(recording, whole_life(recording)))["at_peak"];
  EXPECT_EQ(json["rss_sum"], 220 * kMiB) << json;
}

TEST(Accounting, OfMomentsWithTheSameRssTheOneWithMostPssIsThePeak) {
  RecordingAccount recording = two_readers();
  for (ProcessAccount& process : recording.processes) {
    process.accounts.push_back(literal::walk(1.5, {{Cause::file_cache, 100}}));
    process.totals = {literal::totals(1, 110, 65, 20), literal::totals(1.5, 109, 105, 100)};  // it copied meanwhile
  }
  recording.processes[1].totals.back().time_s = 1.51;
  const auto json = accounting_json(build_view(recording, whole_life(recording)))["at_peak"];
  EXPECT_EQ(json["pss_sum"], 210 * kMiB) << json;
}

// The last reading was of the way up: what events say of the time after it counts, and is marked.
TEST(Accounting, AnEstimateWithMorePssIsThePeak) {
  RecordingAccount recording = two_readers();
  for (ProcessAccount& process : recording.processes) {
    process.totals = {literal::totals(1, 110, 65, 20)};
    process.accounts.push_back(literal::walk(1.5, {{Cause::anonymous, 110}}));
    process.accounts.back().estimated_from_s = 1;
  }
  const auto json = accounting_json(build_view(recording, whole_life(recording)))["at_peak"];
  EXPECT_EQ(json["pss_sum"], 220 * kMiB) << json;
  EXPECT_TRUE(json["estimate"]);
}

// Its child copied since its reading: nothing of itself has moved but its PSS.
TEST(Accounting, AReadingBeforeARelativesCopiesIsAnEstimate) {
  for (const std::int64_t copied : {0, 60}) {
    RecordingAccount recording = two_readers();
    ProcessAccount &parent = recording.processes[0], &child = recording.processes[1];
    child.parent = parent.pid;
    parent.accounts = {literal::walk(1, {{Cause::file_cache, 90, kEmptyStack, "", 0}, {Cause::anonymous, 20}})};
    parent.totals = {literal::totals(1, 110, 65, 20)};
    child.accounts = {
        literal::walk(0.9, {{Cause::fork_shared, 110, kEmptyStack, "", 0}}),
        literal::walk(1.4, {{Cause::fork_shared, 110 - copied, kEmptyStack, "", 0}, {Cause::fork_cow, copied + 1}})};
    child.totals = {literal::totals(1.5, 111, 65 + copied, 20 + copied)};
    const auto json = accounting_json(build_view(recording, whole_life(recording)))["at_peak"];
    EXPECT_EQ(json["estimate"], copied > 0) << json;
  }
}

TEST(Accounting, ReadingsThatLieApartAreNoMoment) {
  RecordingAccount recording = two_readers();
  recording.processes[1].totals = {literal::totals(9, 110, 65, 20)};
  const View view = build_view(recording, whole_life(recording));
  EXPECT_TRUE(accounting_json(view)["at_peak"]["estimate"]);
  EXPECT_NE(accounting_table(view).text().find("not read then: from page walks"), std::string::npos);
  recording.processes[1].totals.clear();
  recording.processes[1].high_water_bytes = kMiB;  // a shell: nobody misses it
  EXPECT_EQ(accounting_json(build_view(recording, whole_life(recording)))["at_peak"]["left_out"], 1);
  EXPECT_NE(accounting_title(build_view(recording, whole_life(recording))).find("(1 small process was not read then)"),
            std::string::npos);
  recording.processes[1].high_water_bytes = 110 * kMiB;
  EXPECT_TRUE(accounting_json(build_view(recording, whole_life(recording)))["at_peak"].is_null());
  EXPECT_EQ(accounting_title(build_view(recording, whole_life(recording))), "");
}

}  // namespace
}  // namespace whyrss::memory_verdict_test
