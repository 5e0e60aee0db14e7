// Recordings, written here record by record, to accounts: stacks, exec, fork, kills, damage, hostile bytes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "decode/event_stream.h"
#include "decode/page_walk_reader.h"
#include "load/load.h"
#include "model/thread_starts.h"
#include "native_places.h"
#include "recording_builder.h"
#include "shim/trace/pool.h"

namespace whyrss::ingest_test {
namespace {

using namespace testing_support;
using trace::FrameKind;
using trace::PageBits;
using trace::RecordKind;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kHeap = 0x20000000;
constexpr std::uint64_t kMapped = 0x7f0000001000;  // no multiple of 64 MiB, as glibc arenas have
constexpr std::uint32_t kOwn = PageBits::present | PageBits::exclusive;

// As "cause file:function:line/mapping" -> bytes, of the innermost frame.
std::map<std::string, std::int64_t> summary(const RecordingAccount& recording, const Account& account) {
  std::map<std::string, std::int64_t> result;
  std::int64_t total = 0;
  for (const Slice& slice : account.slices) {
    std::string name(info(slice.site.cause).slug);
    const auto& frames = recording.stacks[slice.site.stack];
    if (!frames.empty()) {
      const Frame& frame = recording.stacks[frames[0]];
      name += frame.kind == whyrss::FrameKind::python
                  ? " " + frame.function + ":" + std::to_string(frame.line)
                  : " " + recording.stacks[frame.module].path + "+" + std::to_string(frame.address);
    }
    result[name] += slice.bytes;
    total += slice.bytes;
  }
  EXPECT_EQ(total, account.rss_bytes);
  return result;
}

using Summary = std::map<std::string, std::int64_t>;

TestVma heap(std::uint32_t pages, std::uint32_t bits = kOwn) {
  return {.start = kHeap, .path = "[heap]", .runs = {{bits, pages}}};
}

TEST(Ingest, BlamesBlocksAndMappingsOnTheirLines) {
  TestRecording recording;
  recording.manifest.command = {"job"};
  recording.add(
      100,
      {segment(1, 0,
               joined({attach(kSecond, 100, 1, trace::Born::exec), module_at(kSecond, 0x5000, 0x6000, "/usr/bin/job"),
                       python_at(kSecond, 0x8000, 0x9000, 0x8100, 0x8200), code(kSecond, 1, "job.py", "load", 17),
                       stack(kSecond, 1, {0x5101, 0x5201}),
                       stack(kSecond, 2, {0x10000010, 0x8051, 0x8150, 0x5301},
                             {{1, -1, trace::kNoNativeIndex, trace::PythonFrameFlags::entry, 0}}),
                       block(RecordKind::allocate, 2 * kSecond, kHeap + 4096, 8192, 1),
                       map(2 * kSecond, kMapped, 5 * 4096, 2)}))},
      {{FrameKind::walk, walk(3 * kSecond, {heap(4), {.start = kMapped, .path = {}, .runs = {{kOwn, 5}}}})}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  EXPECT_TRUE(account->info.complete);
  EXPECT_EQ(account->info.duration_s, 8.0);
  ASSERT_EQ(account->processes.size(), 1U);
  const ProcessAccount& process = account->processes[0];
  EXPECT_TRUE(process.traced);
  EXPECT_EQ(process.command, (std::vector<std::string>{"job", "--fast"}));
  EXPECT_EQ(process.allocator, "glibc");
  EXPECT_EQ(process.python, "3.11.2");
  ASSERT_EQ(process.accounts.size(), 1U);
  EXPECT_EQ(process.accounts[0].time_s, 2.0);
  EXPECT_EQ(summary(*account, process.accounts[0]),
            (Summary{{"heap_live /usr/bin/job+256", 8192}, {"heap_live", 2 * 4096}, {"anonymous load:17", 5 * 4096}}));
  // Of the second stack the shim's frame and the interpreter's are hidden.
  for (const Slice& slice : process.accounts[0].slices) {
    if (slice.site.cause == Cause::anonymous) {
      EXPECT_EQ(account->stacks[slice.site.stack].size(), 2U);
    }
  }
}

// What a thread does in code of others stands under the line that started it. Threads have no lines of each other.
TEST(Ingest, AThreadWithoutALineOfTheProgramIsOfTheLineThatStartedIt) {
  TestRecording recording;
  const auto lines =
      joined({attach(kSecond, 100, 1, trace::Born::exec), module_at(kSecond, 0x5000, 0x6000, "/usr/lib/libpool.so"),
              python_at(kSecond, 0x8000, 0x9000, 0x8100, 0x8200), code(kSecond, 1, "/home/u/job.py", "load", 17),
              code(kSecond, 2, "/usr/lib/python3.11/threading.py", "run", 900), stack(kSecond, 1, {0x5101})});
  const auto python = [](std::uint32_t id, std::uint32_t code_id) {
    return stack(kSecond, id, {0x8150}, {{code_id, -1, trace::kNoNativeIndex, trace::PythonFrameFlags::entry, 0}});
  };
  const auto allocate = [](std::uint64_t number, std::uint32_t stack_id, std::uint32_t tid) {
    return block(RecordKind::allocate, 2 * kSecond, kHeap + 4096 * number, 4096, stack_id, tid);
  };
  recording.add(
      100,
      {segment(1, 0,
               joined({lines, python(2, 1), python(3, 2), thread_started(kSecond, 7, 2), thread_started(kSecond, 8, 3),
                       allocate(1, 1, 7), allocate(2, 1, 8), allocate(3, 1, 1), allocate(4, 3, 7), allocate(5, 2, 7),
                       thread_created(kSecond, 9, 7), thread_started(kSecond, 9, 3), allocate(6, 3, 9)}))},
      {{FrameKind::walk, walk(3 * kSecond, {heap(7)})}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  const StackTable& stacks = account->stacks;
  std::map<std::string, std::int64_t> by_thread, alone;
  for (const Slice& slice : account->processes.at(0).accounts.at(0).slices) {
    const bool has_starter =
        std::ranges::any_of(stacks[slice.site.stack], [&](FrameId id) { return is_thread_frame(stacks[id]); });
    const std::vector<FrameId> frames = stacks[slice.site.stack];
    if (!frames.empty()) (has_starter ? by_thread : alone)[stacks[frames.back()].function] += slice.bytes;
  }
  EXPECT_EQ(by_thread, (std::map<std::string, std::int64_t>{{"load", 3 * 4096}}));
  EXPECT_EQ(alone, (std::map<std::string, std::int64_t>{{"", 2 * 4096}, {"load", 4096}}));
}

// Of a thread without Python frames the stack goes on with that of the thread that waits, if it has a line of the
// user's files, else with the one that started it too.
TEST(Ingest, WhereAThreadWaited) {
  TestRecording recording;
  const auto lines =
      joined({attach(kSecond, 100, 1, trace::Born::exec), module_at(kSecond, 0x5000, 0x6000, "/usr/lib/libpool.so"),
              python_at(kSecond, 0x8000, 0x9000, 0x8100, 0x8200), code(kSecond, 1, "/home/u/job.py", "load", 17),
              code(kSecond, 2, "/usr/lib/python3.11/threading.py", "run", 900),
              code(kSecond, 3, "/home/u/job.py", "start", 3)});
  const auto at = [](std::uint32_t code_id, std::uint16_t flags = trace::PythonFrameFlags::entry) {
    return trace::PythonFrame{code_id, -1, trace::kNoNativeIndex, flags, 0};
  };
  const auto allocate = [](std::uint64_t number, std::uint32_t stack_id) {
    return block(RecordKind::allocate, 2 * kSecond, kHeap + 4096 * number, 4096, stack_id, 7);
  };
  recording.add(
      100,
      {segment(1, 0,
               joined({lines, stack(kSecond, 1, {0x5101}, {}, {at(2), at(1)}), stack(kSecond, 2, {0x5101}, {}, {at(2)}),
                       stack(kSecond, 3, {0x8150}, {at(3)}), thread_started(kSecond, 7, 3),
                       stack(kSecond, 4, {0x5101}, {}, {at(1, trace::PythonFrameFlags::incomplete), at(1)}),
                       allocate(1, 1), allocate(2, 2), allocate(3, 4), stack(kSecond, 5, {0x5201}, {}, {at(1)}),
                       thread_created(kSecond, 8, 7), thread_started(kSecond, 8, 5), stack(kSecond, 6, {0x5301}),
                       block(RecordKind::allocate, 2 * kSecond, kHeap + 4096 * 4, 4096, 6, 8)}))},
      {{FrameKind::walk, walk(3 * kSecond, {heap(5)})}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  std::set<std::vector<std::string>> found;
  for (const Slice& slice : account->processes.at(0).accounts.at(0).slices) {
    std::vector<std::string> names;
    for (const FrameId id : account->stacks[slice.site.stack]) names.push_back(account->stacks[id].function);
    if (!names.empty()) found.insert(names);
  }
  EXPECT_EQ(found,
            (std::set<std::vector<std::string>>{{"", "<while this ran>", "run", "load"},
                                                {"", "<while this ran>", "load"},
                                                {"", "<while this ran>", "run", "<thread started by>", "start"},
                                                {"", "<thread started by>", "", "<thread started by>", "start"}}))
      << "what a thread of a pool starts is of the line that started the pool, whoever waited";
}

TEST(Ingest, AFileThatWasDeletedIsTheSameFile) {
  constexpr std::uint32_t kCached = PageBits::present | PageBits::file;
  TestRecording recording;
  recording.add(
      100, {segment(1, 0, attach(kSecond, 100, 1, trace::Born::exec))},
      {{FrameKind::walk,
        walk(2 * kSecond,
             {{.start = kMapped, .path = "/data/big.txt", .backing = trace::Backing::file, .runs = {{kCached, 1}}}})},
       {FrameKind::walk, walk(3 * kSecond, {{.start = kMapped,
                                             .path = "/data/big.txt (deleted)",
                                             .backing = trace::Backing::file,
                                             .runs = {{kCached, 2}}}})}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  ASSERT_EQ(account->processes.size(), 1U);
  ASSERT_EQ(account->processes[0].accounts.size(), 2U);
  for (const Account& moment : account->processes[0].accounts) {
    ASSERT_EQ(moment.slices.size(), 1U);
    EXPECT_EQ(moment.slices[0].site.mapping, "/data/big.txt");
  }
}

// Polls at 2, 3 and 4 s: so many pages of a file are there at the second one alone.
ByteVector polls_of_a_brief_mapping(std::uint64_t pages) {
  ByteVector points;
  for (const trace::Poll& poll :
       {trace::Poll{2 * kSecond, 10, 0, 0, 0}, trace::Poll{3 * kSecond, 10 + pages, pages, 0, 0},
        trace::Poll{4 * kSecond, 10, 0, 0, 0}})
    append(points, &poll, sizeof poll);
  return points;
}

// Events do not say what was mapped. At a moment between walks it is what the next one shows there, unless that was
// mapped later.
TEST(Ingest, AFileThatWasMappedSinceTheWalkIsNamedByTheNextOne) {
  constexpr std::uint32_t kCached = PageBits::present | PageBits::file;
  constexpr std::uint64_t kPages = 1024;
  const auto mapping_between = [](const ByteVector& later) {
    TestRecording recording;
    const ByteVector points = polls_of_a_brief_mapping(kPages);
    const TestVma file{
        .start = kMapped, .path = "/data/big", .backing = trace::Backing::file, .runs = {{kCached, kPages}}};
    recording.add(
        100,
        {segment(1, 0,
                 joined({attach(kSecond, 100, 1, trace::Born::exec),
                         map(kSecond * 5 / 2, kMapped, kPages * 4096, 0, trace::MapOrigin::program, 3), later}))},
        {{FrameKind::walk, walk(2 * kSecond, {heap(10)})},
         {FrameKind::polls, points},
         {FrameKind::walk, walk(5 * kSecond, {heap(10), file})}});
    recording.write_manifest();
    const auto account = load_account(recording.path());
    EXPECT_TRUE(account.ok());
    for (const Account& moment : account->processes.at(0).accounts)
      for (const Slice& slice : moment.slices)
        if (moment.estimated_from_s && slice.site.cause == Cause::file_cache) return slice.site.mapping;
    return std::string("no such account");
  };
  EXPECT_EQ(mapping_between({}), "/data/big");
  EXPECT_EQ(mapping_between(map(4 * kSecond, kMapped, kPages * 4096, 0, trace::MapOrigin::program, 4)), "");
}

// Mapped and unmapped between two walks: what it was says its record.
TEST(Ingest, AFileInMemoryThatWasMappedBrieflyIsSharedMemory) {
  constexpr std::uint64_t kPages = 1024;
  const auto causes_with = [](trace::MappedFile file) {
    TestRecording recording;
    const ByteVector points = polls_of_a_brief_mapping(kPages);
    recording.add(100,
                  {segment(1, 0,
                           joined({attach(kSecond, 100, 1, trace::Born::exec),
                                   map(kSecond * 5 / 2, kMapped, kPages * 4096, 0, trace::MapOrigin::program, 3, file),
                                   range_record(RecordKind::unmap, kSecond * 7 / 2, kMapped, kPages * 4096)}))},
                  {{FrameKind::walk, walk(2 * kSecond, {heap(10)})},
                   {FrameKind::polls, points},
                   {FrameKind::walk, walk(5 * kSecond, {heap(10)})}});
    recording.write_manifest();
    const auto account = load_account(recording.path());
    EXPECT_TRUE(account.ok());
    std::map<Cause, std::int64_t> most;
    for (const Account& moment : account->processes.at(0).accounts)
      for (const Slice& slice : moment.slices)
        if (moment.estimated_from_s) most[slice.site.cause] = std::max(most[slice.site.cause], slice.bytes);
    return std::pair(most[Cause::shared_memory], most[Cause::file_cache]);
  };
  constexpr auto kBytes = static_cast<std::int64_t>(kPages * 4096);
  EXPECT_EQ(causes_with(trace::MappedFile::memory), std::pair(kBytes, std::int64_t{0}));
  EXPECT_EQ(causes_with(trace::MappedFile::disk), std::pair(std::int64_t{0}, kBytes));
}

// Sizes in pages of what is estimated for a poll between two walks, by mapping; "?" is of unknown cause.
std::map<std::string, std::int64_t> between_walks(const std::vector<TestVma>& vmas, const trace::Poll& poll) {
  TestRecording recording;
  ByteVector points;
  append(points, &poll, sizeof poll);
  std::vector<TestVma> walked{heap(10)};
  walked.insert(walked.end(), vmas.begin(), vmas.end());
  recording.add(100, {segment(1, 0, attach(kSecond, 100, 1, trace::Born::exec))},
                {{FrameKind::walk, walk(2 * kSecond, walked)},
                 {FrameKind::polls, points},
                 {FrameKind::walk, walk(5 * kSecond, {heap(10)})}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  EXPECT_TRUE(account.ok());
  std::map<std::string, std::int64_t> pages;
  for (const Account& moment : account->processes.at(0).accounts)
    for (const Slice& slice : moment.slices)
      if (moment.estimated_from_s)
        pages[slice.site.cause == Cause::not_looked_at ? "?" : slice.site.mapping] += slice.bytes / 4096;
  return pages;
}

// 6000 pages, and 4000 far behind them.
std::vector<TestVma> two_mappings(trace::Backing backing, std::uint32_t bits, const char* first, const char* second) {
  return {{.start = kMapped, .path = first, .backing = backing, .runs = {{bits, 6000}}},
          {.start = kMapped + (1ULL << 30), .path = second, .backing = backing, .runs = {{bits, 4000}}}};
}

// Which of two files is not known, how much of both is.
TEST(Ingest, PagesOfFilesThatTheKernelTookBackAreGone) {
  const auto pages =
      between_walks(two_mappings(trace::Backing::file, PageBits::present | PageBits::file, "/data/a", "/data/b"),
                    {3 * kSecond, 10 + 5000, 5000, 0, 0});
  EXPECT_EQ(pages.at("/data/a"), 3000);
  EXPECT_EQ(pages.at("/data/b"), 2000);
  EXPECT_FALSE(pages.contains("?"));
}

// Each part of private memory still has what is left if all that went was its own.
TEST(Ingest, OfPrivateMemoryThatWentNoPartIsSaidToBeMoreThanIsCertain) {
  const auto pages = between_walks(two_mappings(trace::Backing::anonymous, kOwn, "[anon: a]", "[anon: b]"),
                                   {3 * kSecond, 10 + 7000, 0, 0, 0});
  // glibc may have given back the end of its heap: ten.
  EXPECT_EQ(pages.at("[anon: a]"), 3010);
  EXPECT_EQ(pages.at("[anon: b]"), 1010);
  EXPECT_EQ(pages.at("?"), 2990);
}

TEST(Ingest, ExecForgetsAndOneWithoutUsIsUntraced) {
  TestRecording recording;
  recording.add(100,
                {segment(1, 0,
                         joined({attach(kSecond, 100, 1, trace::Born::exec), map(kSecond, kMapped, 8192, 0),
                                 text(RecordKind::exec, 3 * kSecond, "/bin/x")})),
                 segment(2, 0,
                         joined({attach(4 * kSecond, 100, 1, trace::Born::exec),
                                 text(RecordKind::exec, 6 * kSecond, "/bin/missing"),
                                 text(RecordKind::exec_failed, 6 * kSecond + 1, "/bin/missing"),
                                 text(RecordKind::exec, 8 * kSecond, "/bin/static")}))},
                {{FrameKind::walk, walk(2 * kSecond, {{.start = kMapped, .path = {}, .runs = {{kOwn, 2}}}})},
                 {FrameKind::walk, walk(5 * kSecond, {{.start = kMapped, .path = {}, .runs = {{kOwn, 2}}}})},
                 {FrameKind::walk, walk(7 * kSecond, {heap(1)})},
                 {FrameKind::walk, walk(9 * kSecond, {heap(1)})}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  const auto& accounts = account->processes.at(0).accounts;
  ASSERT_EQ(accounts.size(), 4U);
  EXPECT_EQ(summary(*account, accounts[0]), (Summary{{"anonymous", 8192}}));
  EXPECT_EQ(summary(*account, accounts[1]), (Summary{{"unknown", 8192}}));
  EXPECT_EQ(summary(*account, accounts[2]), (Summary{{"heap_live", 4096}}));
  EXPECT_EQ(summary(*account, accounts[3]), (Summary{{"unknown", 4096}}));
}

TEST(Ingest, AForkChildKnowsItsParentsStacksAndCopiesAtMostItsFaults) {
  TestRecording recording;
  recording.add(
      100,
      {segment(1, 0,
               joined({attach(kSecond, 100, 1, trace::Born::exec), module_at(kSecond, 0x5000, 0x6000, "/usr/bin/job"),
                       stack(kSecond, 1, {0x5101}), block(RecordKind::allocate, kSecond, kHeap, 10 * 4096, 1),
                       process_record(RecordKind::fork, 2 * kSecond, 101),
                       block(RecordKind::release, 2 * kSecond + 5, kHeap, 0, 0)}))},
      {{FrameKind::walk, walk(kSecond + 5, {heap(10)})}});
  recording.add(
      101,
      {segment(
          2, 0,
          joined({attach(2 * kSecond + 9, 101, 100, trace::Born::fork), inherited(2 * kSecond + 10, {{kHeap, 10}})}))},
      {{FrameKind::walk, walk(3 * kSecond, {heap(10, PageBits::present)}, 0)},
       {FrameKind::walk,
        walk(4 * kSecond, {{.start = kHeap, .path = "[heap]", .runs = {{kOwn, 6}, {PageBits::present, 4}}}}, 4)}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  ASSERT_EQ(account->processes.size(), 2U);
  EXPECT_EQ(account->processes[0].pid, 100);
  const ProcessAccount& child = account->processes[1];
  EXPECT_TRUE(child.born_by_fork);
  EXPECT_EQ(child.parent, 100);
  EXPECT_EQ(summary(*account, child.accounts.at(0)), (Summary{{"fork_shared /usr/bin/job+256", 40960}}));
  EXPECT_EQ(summary(*account, child.accounts.at(1)),
            (Summary{{"fork_cow /usr/bin/job+256", 4 * 4096}, {"fork_shared /usr/bin/job+256", 6 * 4096}}));
  ASSERT_EQ(child.copies.size(), 1U);
  EXPECT_EQ(child.copies[0].copied_bytes, 4 * 4096);
  EXPECT_EQ(child.copies[0].time_s, 3.0);
}

// Two children have been walked, and end; before that is known the parent asks for a walk of what is its own now.
TEST(Ingest, WalksThatProcessesAskedForAreNoRound) {
  TestRecording recording;
  const auto request = trace::WalkTrigger::request;
  recording.add(
      100,
      {segment(1, 0,
               joined({attach(kSecond, 100, 1, trace::Born::exec), process_record(RecordKind::fork, 2 * kSecond, 101),
                       process_record(RecordKind::fork, 2 * kSecond + 1, 102)}))},
      {{FrameKind::walk, walk(kSecond + 5, {heap(10)})},
       {FrameKind::walk, walk(3 * kSecond + 9'000, {heap(10)}, 2, request)}});
  for (const std::uint32_t child : {101U, 102U})
    recording.add(child,
                  {segment(child, 0,
                           joined({attach(2 * kSecond + child, child, 100, trace::Born::fork),
                                   inherited(2 * kSecond + child + 1, {{kHeap, 10}})}))},
                  {{FrameKind::walk, walk(3 * kSecond + child, {heap(10, PageBits::present)}, 1, request)}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  ASSERT_EQ(account->processes.size(), 3U);
  std::int64_t copied = 0;
  for (const CowSlice& slice : account->processes[0].copies) copied += slice.copied_bytes;
  EXPECT_LE(copied, 2 * 4096);
}

std::int64_t copied_pages(const ProcessAccount& account) {
  std::int64_t bytes = 0;
  for (const SharingChange& change : account.sharing) bytes += change.copied_bytes;
  return bytes / 4096;
}

// Pages that both had for themselves in the same round. The child's faults between the two walks were on memory of its
// own, which it has given back; so the parent, which nobody sampled, copied.
TEST(Ingest, TheFaultsOfAWalkThatIsReadAheadAreSampledAsWell) {
  constexpr std::uint32_t kPages = 500, kFaults = 400;
  TestRecording recording;
  const auto round = trace::WalkTrigger::growth;
  recording.add(100,
                {segment(1, 0,
                         joined({attach(kSecond, 100, 1, trace::Born::exec),
                                 process_record(RecordKind::fork, 2 * kSecond, 101)}))},
                {{FrameKind::walk, walk(kSecond + 5, {heap(kPages)})},
                 {FrameKind::walk, walk(3 * kSecond, {heap(kPages)}, 2 * kPages, round)}});
  std::vector<ByteVector> child{attach(2 * kSecond + 9, 101, 100, trace::Born::fork),
                                inherited(2 * kSecond + 10, {{kHeap, kPages}})};
  for (std::uint32_t fault = 0; fault < kFaults; ++fault)
    child.push_back(touch(3 * kSecond + fault, kMapped + std::uint64_t{fault} * 4096, 1));
  recording.add(101, {segment(2, 0, joined(child))},
                {{FrameKind::walk, walk(3 * kSecond + 10'000, {heap(kPages)}, kFaults, round, 5'000)}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  ASSERT_EQ(account->processes.size(), 2U);
  EXPECT_LE(copied_pages(account->processes[1]), 3);  // the error of samples that stand for one fault each
  EXPECT_EQ(copied_pages(account->processes[0]) + copied_pages(account->processes[1]), kPages);
}

// A walk that began before a fork shows pages that only the parent has yet: neither of the two has copied them. What
// the parent copies after that is its own, though the faults came before the walk ended.
TEST(Ingest, AWalkThatAForkFellInIsNoWalkOfWhatItShared) {
  TestRecording recording;
  const auto parent_heap = [](std::uint32_t own) {
    return TestVma{.start = kHeap, .path = "[heap]", .runs = {{kOwn, own}, {PageBits::present, 10 - own}}};
  };
  recording.add(100,
                {segment(1, 0,
                         joined({attach(kSecond, 100, 1, trace::Born::exec),
                                 process_record(RecordKind::fork, 3 * kSecond - 1'000, 101)}))},
                {{FrameKind::walk, walk(2 * kSecond, {heap(10)}, 10)},
                 {FrameKind::walk, walk(3 * kSecond, {heap(10)}, 14, trace::WalkTrigger::growth, 5'000)},
                 {FrameKind::walk, walk(4 * kSecond, {parent_heap(4)}, 14, trace::WalkTrigger::growth)}});
  recording.add(101,
                {segment(2, 0,
                         joined({attach(3 * kSecond - 900, 101, 100, trace::Born::fork),
                                 inherited(3 * kSecond - 800, {{kHeap, 10}})}))},
                {{FrameKind::walk, walk(4 * kSecond + 5'000, {parent_heap(4)}, 0, trace::WalkTrigger::growth)}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  ASSERT_EQ(account->processes.size(), 2U);
  EXPECT_EQ(copied_pages(account->processes[0]), 4);
  EXPECT_EQ(copied_pages(account->processes[1]), 0);
  EXPECT_EQ(summary(*account, account->processes[1].accounts.at(0)), (Summary{{"fork_shared", 10 * 4096}}));
}

// The parent replaced itself before the child was heard of, and the child has another parent by then.
TEST(Ingest, AForkChildSaysWhoseTablesItWentOnWith) {
  TestRecording recording;
  const auto job = [](std::uint64_t time_ns) { return module_at(time_ns, 0x5000, 0x6000, "/usr/bin/job"); };
  recording.add(100,
                {segment(1, 0,
                         joined({attach(kSecond, 100, 1, trace::Born::exec), tables(kSecond, 100), job(kSecond),
                                 stack(kSecond, 1, {0x5101}), stack(kSecond + 8, 2, {0x5401}),
                                 attach(kSecond + 9, 100, 1, trace::Born::exec), tables(kSecond + 9, 100),
                                 job(kSecond + 9), stack(kSecond + 9, 1, {0x5201})}))},
                {});
  const auto add_child = [&](std::uint32_t pid, const ByteVector& named) {
    recording.add(
        pid,
        {segment(pid, 0,
                 joined({attach(2 * kSecond, pid, 1, trace::Born::fork), named, stack(2 * kSecond, 2, {0x5301}),
                         block(RecordKind::allocate, 2 * kSecond, kHeap, 4 * 4096, 1),
                         block(RecordKind::allocate, 2 * kSecond, kHeap + 4 * 4096, 6 * 4096, 2)}))},
        {{FrameKind::walk, walk(3 * kSecond, {heap(10)})}});
  };
  add_child(101, tables(2 * kSecond, 101, 100, kSecond));
  add_child(102, tables(2 * kSecond, 102, 77, 77));            // of a process that nobody saw
  add_child(103, tables(2 * kSecond, 103, 104, 2 * kSecond));  // damaged: in a circle
  add_child(104, tables(2 * kSecond, 104, 103, 2 * kSecond));
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  ASSERT_EQ(account->processes.size(), 5U);
  EXPECT_EQ(summary(*account, account->processes[1].accounts.at(0)),
            (Summary{{"heap_live /usr/bin/job+256", 4 * 4096}, {"heap_live /usr/bin/job+768", 6 * 4096}}));
  for (const std::size_t unknown : {2U, 3U, 4U})
    EXPECT_EQ(summary(*account, account->processes[unknown].accounts.at(0)).at("heap_live"), 4 * 4096) << unknown;
  const std::set<Place> places = native_places(recording.path());
  for (const Place& place : native_places(account->stacks)) EXPECT_TRUE(places.contains(place)) << place.second;
  EXPECT_TRUE(places.contains({"/usr/bin/job", 0x100}));
}

TEST(Ingest, PhasesNotesLossesAndProcessesNeverWalked) {
  TestRecording recording;
  recording.add(
      100,
      {segment(
          1, 0,
          joined({attach(kSecond, 100, 1, trace::Born::exec), text(RecordKind::mark, 2 * kSecond, "epoch", 1),
                  text(RecordKind::mark, 4 * kSecond, "epoch", 2), text(RecordKind::note, kSecond, "no stacks here")}),
          3)},
      {});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  ASSERT_EQ(account->phases.size(), 1U);
  EXPECT_EQ(account->phases[0].from_s, 1.0);
  EXPECT_EQ(account->phases[0].to_s, 3.0);
  EXPECT_EQ(account->processes.at(0).notes, (std::vector<std::string>{"no stacks here"}));
  EXPECT_EQ(account->info.lost_events, 3U);
  EXPECT_EQ(account->info.lost_snapshots, 1U);
}

std::pair<FrameKind, ByteVector> text_frame(FrameKind kind, std::uint64_t time_ns, trace::WalkTrigger moment,
                                            const std::string& text) {
  const trace::TextHeader header{.time_ns = time_ns,
                                 .moment = static_cast<std::uint32_t>(moment),
                                 .text_bytes = static_cast<std::uint32_t>(text.size())};
  ByteVector payload;
  append(payload, &header, sizeof header);
  append(payload, text);
  return {kind, payload};
}

TEST(Ingest, AProcessLeavesWithTheLastReadingAfterItSaidSo) {
  const auto left_s = [](const ByteVector& records, std::uint64_t walk_ns) {
    TestRecording recording;
    const auto rollup = text_frame(FrameKind::rollup, 7 * kSecond / 2, trace::WalkTrigger::request,
                                   "1000-9000 ---p 00000000 00:00 0    [rollup]\nRss: 64 kB\nPss: 64 kB\n");
    recording.add(100, {segment(1, 0, records)}, {{FrameKind::walk, walk(walk_ns, {heap(4)})}, rollup});
    recording.write_manifest();
    const auto account = load_account(recording.path());
    EXPECT_TRUE(account.ok());
    return account->processes.at(0).left_s;
  };
  const ByteVector begun = attach(kSecond, 100, 1, trace::Born::exec);
  const ByteVector leaves = joined({begun, process_record(RecordKind::exit, 3 * kSecond, 100)});
  EXPECT_EQ(left_s(begun, 2 * kSecond), std::nullopt);
  EXPECT_EQ(left_s(leaves, 3 * kSecond + 1), 2.5);
  EXPECT_EQ(left_s(joined({begun, process_record(RecordKind::teardown, 4 * kSecond, 100)}), 2 * kSecond), 3.0);
  EXPECT_EQ(left_s(joined({leaves, attach(4 * kSecond, 100, 1, trace::Born::exec)}), 2 * kSecond), std::nullopt);
  EXPECT_EQ(left_s(leaves, 8 * kSecond), std::nullopt);  // it lives on
}

constexpr std::uint64_t kMs = 1'000'000;

std::pair<FrameKind, ByteVector> ended_at(std::uint64_t time_ns, const std::string& more = "") {
  ByteVector payload;
  append(payload, "{\"ended_ns\": " + std::to_string(time_ns) + ", \"how\": \"exit\"" + more + "}");
  return {FrameKind::ended, payload};
}

std::pair<FrameKind, ByteVector> polls(const std::vector<trace::Poll>& points) {
  ByteVector payload;
  append(payload, points.data(), points.size() * sizeof(trace::Poll));
  return {FrameKind::polls, payload};
}

// Of process 100, born at 1 s, where the recording begins; it ends at 5 s.
ProcessAccount ended_process(std::vector<ByteVector> records, std::vector<std::pair<FrameKind, ByteVector>> pages) {
  TestRecording recording;
  records.insert(records.begin(), attach(kSecond, 100, 1, trace::Born::exec));
  pages.push_back(ended_at(5 * kSecond));
  recording.add(100, {segment(1, 0, joined(records))}, pages);
  recording.write_manifest();
  const auto account = load_account(recording.path());
  EXPECT_TRUE(account.ok());
  return account->processes.at(0);
}

std::pair<FrameKind, ByteVector> walk_frame(std::uint64_t time_ns, trace::WalkTrigger trigger) {
  return {FrameKind::walk, walk(time_ns, {heap(4)}, 0, trigger)};
}

TEST(Ingest, ATeardownBeginsWithTheWalkThatItAskedFor) {
  using trace::Teardown;
  const auto reported = [](std::uint64_t time_ns, std::int32_t status) {
    return process_record(RecordKind::teardown, time_ns, 100, status);
  };
  const auto early = walk_frame(2 * kSecond, trace::WalkTrigger::start);
  const auto asked = walk_frame(4 * kSecond + 5 * kMs, trace::WalkTrigger::exit);
  const auto late = walk_frame(4 * kSecond + 2500 * kMs, trace::WalkTrigger::growth);
  const ByteVector exit = process_record(RecordKind::exit, 5 * kSecond, 100);
  const auto teardown_s = [&](const std::vector<ByteVector>& records, const auto&... walks) {
    return ended_process(records, {walks...}).teardown_s;
  };
  EXPECT_EQ(teardown_s({exit}, early), std::nullopt);
  EXPECT_EQ(teardown_s({reported(4 * kSecond, Teardown::process), exit}, early, asked), 3.005);
  EXPECT_EQ(teardown_s({reported(4 * kSecond, Teardown::process), exit}, early), 3.0);  // it came too late
  EXPECT_EQ(teardown_s({reported(4 * kSecond, Teardown::process | Teardown::unmoved), exit}, early, asked), 3.0);
  // A walk of the collector's own shows the same, until something is given back.
  const auto own = walk_frame(4 * kSecond + 5 * kMs, trace::WalkTrigger::fork);
  const auto unmaps = [](std::uint64_t time_ns) { return range_record(RecordKind::unmap, time_ns, kMapped, 4096); };
  const ByteVector leaves = reported(4 * kSecond, Teardown::process);
  EXPECT_EQ(teardown_s({leaves, exit}, own), 3.005);
  EXPECT_EQ(teardown_s({leaves, unmaps(4 * kSecond + 6 * kMs), exit}, early, own), 3.005);
  EXPECT_EQ(teardown_s({leaves, unmaps(4 * kSecond + 3 * kMs), exit}, early, own), 3.0);
  const auto asked_later = walk_frame(4 * kSecond + 8 * kMs, trace::WalkTrigger::exit);
  EXPECT_EQ(teardown_s({leaves, exit}, own, asked_later), 3.008);
  EXPECT_EQ(teardown_s({leaves, unmaps(4 * kSecond + 6 * kMs), exit}, own, asked_later), 3.005);
  EXPECT_EQ(teardown_s({reported(4 * kSecond, Teardown::process | Teardown::unmoved), exit}, early, own), 3.0);
  // The end of a script is a begin only where the end of the interpreter says so.
  const ByteVector script = reported(3 * kSecond, Teardown::script | Teardown::unmoved);
  EXPECT_EQ(teardown_s({script, exit}, early), std::nullopt);
  EXPECT_EQ(teardown_s({script, reported(4 * kSecond, Teardown::runtime | Teardown::script), exit}, early, asked), 2.0);
  EXPECT_EQ(teardown_s({script, reported(4 * kSecond, Teardown::runtime), exit}, early, asked), 3.005);
  // Whoever outlives its interpreter says when it ends itself, or is killed later.
  EXPECT_EQ(
      teardown_s({reported(2 * kSecond, Teardown::runtime), reported(4 * kSecond, Teardown::process), exit}, asked),
      3.005);
  EXPECT_EQ(teardown_s({reported(4 * kSecond, Teardown::runtime)}, asked, late), std::nullopt);
  EXPECT_EQ(teardown_s({reported(4 * kSecond, 0), exit}, asked, late), std::nullopt);  // an older recording
}

TEST(Ingest, HowLongBeforeItsEndAProcessWasWalked) {
  const auto poll = [](std::uint64_t time_ns, std::uint64_t rss_pages, std::uint64_t faults) {
    return trace::Poll{
        .time_ns = time_ns, .rss_pages = rss_pages, .shared_pages = 0, .minor_faults = faults, .major_faults = 0};
  };
  const auto unseen_s = [](const std::vector<ByteVector>& records, std::uint64_t walk_ns,
                           const std::vector<trace::Poll>& points) {
    return ended_process(records, {walk_frame(walk_ns, trace::WalkTrigger::growth), polls(points)}).unseen_s;
  };
  const auto torn_down = [](std::int32_t status) {
    return process_record(RecordKind::teardown, 3 * kSecond, 100, trace::Teardown::process | status);
  };
  EXPECT_EQ(unseen_s({}, 4950 * kMs, {}), 0);
  EXPECT_EQ(unseen_s({}, 4 * kSecond, {}), 1);
  EXPECT_EQ(unseen_s({torn_down(0)}, 2950 * kMs, {}), 0);
  EXPECT_EQ(unseen_s({torn_down(0)}, 2 * kSecond, {}), 1);
  EXPECT_EQ(unseen_s({torn_down(trace::Teardown::unmoved)}, 2 * kSecond, {}), 0);
  const trace::Poll before = poll(4 * kSecond - 1, 1000, 5000);
  EXPECT_EQ(unseen_s({}, 4 * kSecond, {before, poll(4900 * kMs, 1100, 5100)}), 0);  // it rested
  EXPECT_EQ(unseen_s({}, 4 * kSecond, {before, poll(4900 * kMs, 1300, 5100)}), 1);
  EXPECT_EQ(unseen_s({}, 4 * kSecond, {before, poll(4900 * kMs, 1100, 5300)}), 1);
  EXPECT_EQ(unseen_s({}, 4 * kSecond, {before, poll(4500 * kMs, 1000, 5000)}), 1);  // and then?
}

// Whole, of one page that holds a block, or of nothing.
std::pair<FrameKind, ByteVector> liveness(std::uint64_t walk_ns, bool any) {
  const trace::LivenessHeader header{.walk_end_ns = walk_ns,
                                     .previous_ns = 0,
                                     .range_count = any ? 1U : 0U,
                                     .flags = 0,
                                     .table_live_bytes = 0,
                                     .underflowed_pages = 0,
                                     .pymalloc_live_bytes = 0};
  const trace::LivenessRange range{.start = kHeap, .page_count = 1, .reserved = 0};
  const std::array<std::uint16_t, 4> pages{trace::PageLiveness::ever_held | 8};
  ByteVector payload;
  append(payload, &header, sizeof header);
  if (any) append(payload, &range, sizeof range);
  if (any) append(payload, &pages, sizeof pages);
  return {FrameKind::liveness, payload};
}

TEST(Ingest, AWalkThatAKillCutOffSaysLessThanTheOneBefore) {
  const auto accounts = [](std::uint64_t last_ns, bool any) {
    return ended_process({}, {walk_frame(4 * kSecond, trace::WalkTrigger::growth), liveness(4 * kSecond, true),
                              walk_frame(last_ns, trace::WalkTrigger::growth), liveness(last_ns, any)})
        .accounts.size();
  };
  EXPECT_EQ(accounts(4900 * kMs, false), 1U);
  EXPECT_EQ(accounts(4900 * kMs, true), 2U);
  EXPECT_EQ(accounts(4400 * kMs, false), 2U) << "it lived on";
}

// A signal may end a process that waits for its last walk: the walk finds nothing, and its size is that of the polls.
TEST(Ingest, AWalkOfAProcessThatWasKilledWhileItLeftSaysNothing) {
  const auto poll = [](std::uint64_t time_ns, std::uint64_t rss_pages) {
    return trace::Poll{
        .time_ns = time_ns, .rss_pages = rss_pages, .shared_pages = 0, .minor_faults = 0, .major_faults = 0};
  };
  const ByteVector teardown = process_record(RecordKind::teardown, 4 * kSecond, 100, trace::Teardown::process);
  const auto early = walk_frame(2 * kSecond, trace::WalkTrigger::start);
  ByteVector nothing = walk(4 * kSecond + 5 * kMs, {}, 0, trace::WalkTrigger::exit);
  const std::uint32_t partial = trace::WalkFlags::partial;
  std::memcpy(nothing.data() + offsetof(trace::WalkHeader, flags), &partial, sizeof partial);
  const auto last_pages = [&](const std::vector<trace::Poll>& points) {
    const auto process = ended_process({teardown}, {early, {FrameKind::walk, nothing}, polls(points)});
    EXPECT_GE(process.high_water_bytes, process.accounts.back().rss_bytes);
    return process.accounts.back().rss_bytes / 4096;
  };
  EXPECT_EQ(last_pages({poll(3990 * kMs, 1000)}), 1000);
  EXPECT_EQ(last_pages({poll(3 * kSecond, 500), poll(4 * kSecond + 2 * kMs, 1000)}), 1000) << "it waits";
  EXPECT_EQ(last_pages({poll(4 * kSecond + 2 * kMs, 1000)}), 1000);
  EXPECT_EQ(last_pages({poll(3 * kSecond, 1000), poll(4 * kSecond + 2 * kMs, 500)}), 1000) << "it gives back";
}

TEST(Ingest, ThePeakIsBeforeABlockWentThatTheLargestPollDoesNotHold) {
  constexpr std::uint64_t kSize = 40ULL << 20, kPages = kSize / 4096;
  const auto poll = [](std::uint64_t time_ns, std::uint64_t rss_pages) {
    return trace::Poll{
        .time_ns = time_ns, .rss_pages = rss_pages, .shared_pages = 0, .minor_faults = 100, .major_faults = 0};
  };
  const auto large = [](RecordKind kind, std::uint64_t time_ns, std::uint64_t address) {
    return block(kind, time_ns, address, kSize, 0);
  };
  const std::uint64_t first = kMapped, second = kMapped + 2 * kSize;
  const auto process =
      ended_process({large(RecordKind::allocate, 2100 * kMs, first), large(RecordKind::allocate, 2200 * kMs, second),
                     large(RecordKind::release, 2300 * kMs, first), large(RecordKind::release, 3 * kSecond, second)},
                    {walk_frame(2 * kSecond, trace::WalkTrigger::start),
                     polls({poll(2050 * kMs, 4), poll(2400 * kMs, kPages), poll(3500 * kMs, 4)}),
                     ended_at(5 * kSecond, ", \"high_water_kilos\": " + std::to_string(2 * kSize / 1024))});
  const auto largest = std::ranges::max_element(process.accounts, {}, &Account::rss_bytes);
  EXPECT_EQ(largest->rss_bytes, 2 * kSize);
  EXPECT_NEAR(largest->time_s, 1.3, 1e-6);
}

TEST(Ingest, HighWaterIsAtLeastThatWhereTheEndWasNotSeen) {
  const ByteVector teardown =
      process_record(RecordKind::teardown, 4 * kSecond, 100, trace::Teardown::process | trace::Teardown::unmoved);
  const auto early = walk_frame(2 * kSecond, trace::WalkTrigger::start);
  const auto peaked = ended_at(5 * kSecond, ", \"high_water_kilos\": 3000");
  EXPECT_EQ(ended_process({}, {early, peaked}).high_water_bytes, 3000 * 1024);
  EXPECT_TRUE(ended_process({}, {early, peaked}).high_water_at_least);
  EXPECT_FALSE(ended_process({teardown}, {early, peaked}).high_water_at_least);
}

TEST(Ingest, DescriptorsAreReportedWithTheTimeOfTheirLastCount) {
  const auto counters = [](const std::string& json) {
    ByteVector payload;
    append(payload, json);
    return std::pair{FrameKind::counters, payload};
  };
  TestRecording recording;
  recording.add(100, {},
                {counters(R"({"mappings_first": 50, "descriptors_first": 3})"),
                 counters(R"({"mappings_last": 60, "descriptors_last": 99, "descriptors_last_ns": 3500000000})")});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  const std::map<std::string, std::int64_t> expected{{"mappings_first", 50},
                                                     {"descriptors_first", 3},
                                                     {"mappings_last", 60},
                                                     {"descriptors_last", 99},
                                                     {"descriptors_last_ms", 2500}};
  EXPECT_EQ(account->processes.at(0).counters, expected);
}

TEST(Ingest, EachReadingOfPssKeepsItsOwnTime) {
  const auto rollup = [](std::uint64_t time_ns, const std::string& pss) {
    return text_frame(FrameKind::rollup, time_ns, trace::WalkTrigger::start,
                      "1000-9000 ---p 00000000 00:00 0    [rollup]\nRss: 64 kB\nPss: " + pss + " kB\n");
  };
  TestRecording recording;
  recording.add(100, {}, {rollup(2 * kSecond, "64"), rollup(2 * kSecond + kSecond / 10, "16")});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  const std::vector<KernelTotals>& totals = account->processes.at(0).totals;
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals[0].pss_bytes, 64 * 1024);
  EXPECT_EQ(totals[1].pss_bytes, 16 * 1024);
  EXPECT_NEAR(totals[1].time_s - totals[0].time_s, 0.1, 1e-6);
}

TEST(Ingest, FileCacheThatMlockHolds) {
  const std::string smaps =
      "1000-9000 r--s 00000000 08:01 7    /data/x\nRss: 32 kB\nPss: 32 kB\nAnonymous: 0 kB\nVmFlags: rd mr ms lo sd\n"
      "9000-a000 r--s 00000000 08:01 8    /data/y\nRss: 4 kB\nPss: 4 kB\nAnonymous: 0 kB\nVmFlags: rd mr ms sd\n"
      "a000-b000 rw-p 00000000 00:00 0\nRss: 4 kB\nPss: 4 kB\nAnonymous: 4 kB\nVmFlags: rd wr lo\n";
  TestRecording recording;
  recording.add(100, {}, {text_frame(FrameKind::smaps, 2 * kSecond, trace::WalkTrigger::start, smaps)});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  const std::vector<DirtyFiles>& read = account->processes.at(0).dirty_files;
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].locked, (std::map<std::string, std::int64_t>{{"/data/x", 32 * 1024}}));
}

TEST(EventStream, TakesEachByteOfALeaseOnce) {
  const ByteVector records = joined({map(10, 1 << 20, 4096, 0), map(20, 2 << 20, 4096, 0), map(30, 3 << 20, 4096, 0)});
  const auto part = [&](std::size_t from, std::size_t to) {
    return Bytes(records).subspan(from * 64, (to - from) * 64);
  };
  EventStream stream;
  stream.add_segment(5, 64, 2, part(1, 2));
  stream.add_segment(5, 0, 2, part(0, 2));   // the collector was killed before it said what it had taken
  stream.add_segment(5, 64, 2, part(1, 3));  // and the thread went on
  EXPECT_EQ(stream.records().size(), 3U);
  EXPECT_EQ(stream.lost_records(), 2U);
  EXPECT_EQ(stream.missing_bytes(), 0U);

  EventStream with_gap;
  with_gap.add_segment(5, 128, 0, part(2, 3));
  with_gap.add_segment(6, 0, 0, part(0, 1).first(40));
  EXPECT_EQ(with_gap.records().size(), 1U);
  EXPECT_EQ(with_gap.missing_bytes(), 128U);
  EXPECT_EQ(with_gap.damaged_records(), 1U);
}

TEST(Killed, TheCollectorsLeftoversAreReadFromThePool) {
  TestRecording recording;
  const std::string pool_path = recording.path() + "/pool";
  recording.manifest.state = "recording";
  recording.manifest.ended_ns = 0;
  recording.manifest.pool_path = pool_path;
  const std::uint64_t size = trace::pool_bytes(4, 4);
  void* memory = std::aligned_alloc(4096, size);
  ASSERT_NE(memory, nullptr);
  std::memset(memory, 0, size);
  const trace::PoolView pool = trace::format_pool(memory, 4, 4, kSession);
  const trace::Writer writer{.pool = pool, .pid = 100, .tid = 1, .slot = trace::kNoSlot, .start_ticks = 7};
  const trace::Writer stranger{.pool = pool, .pid = 200, .tid = 2, .slot = trace::kNoSlot, .start_ticks = 8};
  trace::Lease lease, other;
  const auto write = [](const trace::Writer& by, trace::Lease& into, const ByteVector& bytes) {
    std::memcpy(trace::reserve(by, into, bytes.size()), bytes.data(), bytes.size());
    trace::publish(into, bytes.size());
  };
  const ByteVector begin = attach(kSecond, 100, 1, trace::Born::exec);
  write(writer, lease, begin);
  const std::uint64_t lease_number = lease.chunk->lease.load();
  write(writer, lease, map(kSecond, kMapped, 8192, 0));
  write(stranger, other, attach(kSecond, 200, 1, trace::Born::exec));
  std::ofstream(pool_path, std::ios::binary)
      .write(static_cast<const char*>(memory), static_cast<std::streamsize>(size));
  std::free(memory);
  recording.add(100, {segment(lease_number, 0, begin)},
                {{FrameKind::walk, walk(2 * kSecond, {{.start = kMapped, .path = {}, .runs = {{kOwn, 2}}}})}});
  recording.write_manifest();

  auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  EXPECT_FALSE(account->info.complete);
  EXPECT_EQ(account->info.incomplete_why, "the collector was killed");
  ASSERT_EQ(account->processes.size(), 2U);
  EXPECT_EQ(summary(*account, account->processes[0].accounts.at(0)), (Summary{{"anonymous", 8192}}));
  EXPECT_EQ(account->processes[1].pid, 200);

  // While a collector holds the lock, the pool is its own.
  const Fd lock(open((recording.path() + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  EXPECT_EQ(account->info.incomplete_why, "still running");
  EXPECT_EQ(account->processes.size(), 1U);
  ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);

  // Another session's pool, or a broken one, is left alone.
  recording.manifest.session[0] = 'f';
  recording.write_manifest();
  account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  EXPECT_EQ(account->processes.size(), 1U);
}

TEST(BadInput, IsRefusedWithOneLine) {
  TestRecording recording;
  const auto refused = [](const std::string& path, const std::string& with) {
    const auto account = load_account(path);
    ASSERT_FALSE(account.ok());
    EXPECT_NE(account.error().find(with), std::string::npos) << account.error();
    EXPECT_NE(account.error().find(path), std::string::npos) << account.error();
    EXPECT_EQ(account.error().find('\n'), std::string::npos);
  };
  refused(recording.path() + "/missing", "No such file");
  refused(recording.path(), "no manifest.json");
  refused("/etc/passwd", "not a directory");
  std::ofstream(recording.path() + "/manifest.json") << "hello";
  refused(recording.path(), "not JSON");
  std::ofstream(recording.path() + "/manifest.json") << R"({"schema":"whyrss.recording/2"})";
  refused(recording.path(), "whyrss.recording/2");
  std::ofstream(recording.path() + "/manifest.json") << "";
  refused(recording.path(), "manifest.json");
}

TEST(BadInput, FilesOfAnotherRecordingAreLeftOut) {
  TestRecording recording;
  recording.add(100, {segment(1, 0, attach(kSecond, 100, 1, trace::Born::exec))}, {});
  recording.manifest.session = hex32(1, 2);
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  EXPECT_FALSE(account->processes.at(0).traced);
  EXPECT_EQ(account->info.notes.size(), 2U);
}

TEST(BadInput, WalksThatDoNotAddUpAreSkipped) {
  const ByteVector good = walk(kSecond, {heap(4)});
  ASSERT_TRUE(read_walk(good));
  EXPECT_FALSE(read_walk(walk(kSecond, {heap(4), heap(4)})));  // overlap
  ByteVector longer = good;
  longer.resize(longer.size() + 8);
  EXPECT_FALSE(read_walk(longer));
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(read_walk(Bytes(good).first(size)));
}

// A recording with everything in it, cut and flipped everywhere: always an answer or one line.
TEST(BadInput, ADamagedRecordingIsNotComplete) {
  TestRecording recording;
  recording.add(100, {segment(1, 0, attach(kSecond, 100, 1, trace::Born::exec))},
                {{FrameKind::walk, walk(2 * kSecond, {heap(1)})}});
  recording.write_manifest();
  const auto sound = load_account(recording.path());
  ASSERT_TRUE(sound.ok()) << sound.error();
  EXPECT_TRUE(sound->info.complete);
  const std::string pages = recording.process_directory(100) + "/pages.zst";
  std::filesystem::resize_file(pages, std::filesystem::file_size(pages) - 1);
  const auto cut = load_account(recording.path());
  ASSERT_TRUE(cut.ok()) << cut.error();
  EXPECT_FALSE(cut->info.complete);
  EXPECT_EQ(cut->info.incomplete_why, "some of its files are damaged or missing");
}

TEST(BadInput, CutAndFlippedFilesNeverCrash) {
  TestRecording recording;
  std::vector<ByteVector> segments;
  std::vector<std::pair<FrameKind, ByteVector>> pages;
  std::uint32_t seed = 5;
  for (std::uint32_t i = 0; i < 40; ++i) {
    std::vector<ByteVector> records;
    if (i == 0) records.push_back(attach(kSecond, 100, 1, trace::Born::exec));
    for (int j = 0; j < 100; ++j) {
      seed = seed * 1664525 + 1013904223;
      records.push_back(map(kSecond + i, kMapped + std::uint64_t{seed} * 4096, 4096 + seed % 65536, 0));
    }
    segments.push_back(segment(i + 1, 0, joined(records)));
    std::vector<TestVma> vmas;
    for (std::uint64_t vma = 0; vma < 60; ++vma) {
      seed = seed * 1664525 + 1013904223;
      vmas.push_back(
          {.start = kMapped + vma * (1ULL << 32), .path = std::to_string(seed), .runs = {{kOwn, seed % 9999 + 1}}});
    }
    pages.emplace_back(FrameKind::walk, walk(kSecond + i, vmas, i));
  }
  recording.add(100, segments, pages);
  recording.write_manifest();
  for (const char* name : {"/events.zst", "/pages.zst", "/../manifest.json"}) {
    const std::string path = recording.process_directory(100) + name;
    const auto whole = read_file(path);
    ASSERT_TRUE(whole.ok());
    const auto load_with = [&](const std::string& content) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
      const auto account = load_account(recording.path());
      if (!account.ok()) {
        EXPECT_EQ(account.error().find('\n'), std::string::npos);
      }
      return account.ok();
    };
    for (std::size_t size = 0; size < whole->size(); size += 4096) load_with(whole->substr(0, size));
    for (std::size_t at = 3; at < whole->size(); at += whole->size() / 40 + 1) {
      std::string flipped = *whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
      load_with(flipped);
    }
    EXPECT_TRUE(load_with(*whole));
  }
}

}  // namespace
}  // namespace whyrss::ingest_test
