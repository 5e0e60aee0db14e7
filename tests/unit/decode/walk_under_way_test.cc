// What a program gives back, maps and frees while a walk of its pages is under way: the walk may have seen either.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <string>
#include <vector>

#include "compact_builder.h"
#include "load/load.h"

namespace whyrss::walk_under_way_test {
namespace {

using namespace testing_support;
using trace::PageBits;
using trace::RecordKind;

constexpr std::uint64_t kSecond = 1'000'000'000, kMs = 1'000'000;
constexpr std::uint64_t kMapped = 0x7f0000001000;
constexpr std::uint64_t kSize = 64 * 4096;
constexpr std::uint32_t kOwn = PageBits::present | PageBits::exclusive;
constexpr std::uint64_t kBegin = 3 * kSecond, kEnd = kBegin + 40 * kMs;  // of the walk
constexpr std::uint64_t kDuring = kBegin + 10 * kMs;

// Stack n of the job has its one frame at 0x5000 + 256 n.
ByteVector job(const std::vector<ByteVector>& records) {
  std::vector<ByteVector> all{attach(kSecond, 100, 1, trace::Born::exec),
                              module_at(kSecond, 0x5000, 0x6000, "/usr/bin/job"), stack(kSecond, 1, {0x5101}),
                              stack(kSecond, 2, {0x5201})};
  all.insert(all.end(), records.begin(), records.end());
  return joined(all);
}

TestVma file_at(std::uint64_t start, std::uint32_t pages = 64) {
  return {.start = start,
          .path = "/data/big.txt",
          .backing = trace::Backing::file,
          .perms = trace::VmaPerms::read | trace::VmaPerms::shared,
          .runs = {{PageBits::present | PageBits::file, pages}}};
}

TestVma anonymous_at(std::uint64_t start, std::uint32_t pages = 64) {
  return {.start = start, .path = {}, .runs = {{kOwn, pages}}};
}

ByteVector long_walk(const std::vector<TestVma>& vmas) {
  return walk(kEnd, vmas, 0, trace::WalkTrigger::growth, kEnd - kBegin);
}

// "cause stack" of each walk's slices; stack 0: none.
using Seen = std::map<std::string, std::int64_t>;
std::vector<Seen> accounts(const RecordingAccount& recording, const ProcessAccount& process) {
  std::vector<Seen> all;
  for (const Account& account : process.accounts) {
    Seen& seen = all.emplace_back();
    for (const Slice& slice : account.slices) {
      const auto& frames = recording.stacks[slice.site.stack];
      const std::uint64_t call = frames.empty() ? 0 : (recording.stacks[frames[0]].address + 1) / 256;
      seen[std::string(info(slice.site.cause).slug) + " " + std::to_string(call)] += slice.bytes;
    }
  }
  return all;
}

std::vector<Seen> replay(const std::vector<ByteVector>& records, const std::vector<ByteVector>& walks) {
  TestRecording recording;
  std::vector<std::pair<trace::FrameKind, ByteVector>> frames;
  for (const ByteVector& payload : walks) frames.emplace_back(trace::FrameKind::walk, payload);
  recording.add(100, {segment(1, 0, job(records))}, frames);
  recording.write_manifest();
  const auto account = load_account(recording.path());
  EXPECT_TRUE(account.ok()) << account.error();
  return account.ok() ? accounts(*account, account->processes.at(0)) : std::vector<Seen>{};
}

ByteVector map_file(std::uint64_t time_ns, std::uint32_t stack_id, std::uint64_t start = kMapped) {
  return map(time_ns, start, kSize, stack_id, trace::MapOrigin::program, 5);
}
ByteVector unmap(std::uint64_t time_ns, std::uint64_t start = kMapped) {
  return range_record(RecordKind::unmap, time_ns, start, kSize);
}

TEST(WalkUnderWay, AMappingThatEndsMeanwhileLendsItsLine) {
  const ByteVector later = walk(4 * kSecond, {file_at(kMapped)});  // mapped by nobody that was seen
  EXPECT_EQ(replay({map_file(2 * kSecond, 1), unmap(kDuring)}, {long_walk({file_at(kMapped)}), later}),
            (std::vector<Seen>{{{"file_cache 1", kSize}}, {{"file_cache 0", kSize}}}));
  EXPECT_EQ(replay({map(2 * kSecond, kMapped, kSize, 1), unmap(kDuring)}, {long_walk({anonymous_at(kMapped)})}),
            (std::vector<Seen>{{{"anonymous 1", kSize}}}));
}

// The call is stamped before it is made.
TEST(WalkUnderWay, AlsoOneWhoseProcessWasStoppedBeforeTheCall) {
  const std::vector<ByteVector> walks{long_walk({file_at(kMapped)})};
  EXPECT_EQ(replay({map_file(2 * kSecond, 1), unmap(kBegin - 5 * kMs)}, walks),
            (std::vector<Seen>{{{"file_cache 1", kSize}}}));
  EXPECT_EQ(replay({map_file(2 * kSecond, 1), unmap(kBegin - 500 * kMs)}, walks),
            (std::vector<Seen>{{{"file_cache 0", kSize}}}));
}

TEST(WalkUnderWay, WhatIsMappedInItsPlaceWins) {
  EXPECT_EQ(replay({map_file(2 * kSecond, 1), unmap(kDuring), map_file(kDuring + kMs, 2)},
                   {long_walk({file_at(kMapped)}), walk(4 * kSecond, {file_at(kMapped)})}),
            (std::vector<Seen>{{{"file_cache 2", kSize}}, {{"file_cache 2", kSize}}}));
  EXPECT_EQ(replay({map(2 * kSecond, kMapped, kSize, 1), unmap(kDuring),
                    block(RecordKind::allocate, kDuring + kMs, kMapped + 16, kSize - 4096, 2)},
                   {long_walk({anonymous_at(kMapped)})}),
            (std::vector<Seen>{{{"heap_live 2", kSize - 4096}, {"heap_live 0", 4096}}}));
}

TEST(WalkUnderWay, UnlessTheKernelsListShowsWhatWasThereBefore) {
  const ByteVector later = walk(4 * kSecond, {anonymous_at(kMapped)});
  EXPECT_EQ(replay({map_file(2 * kSecond, 1), unmap(kDuring), map(kDuring + kMs, kMapped, kSize, 2)},
                   {long_walk({file_at(kMapped)}), later}),
            (std::vector<Seen>{{{"file_cache 1", kSize}}, {{"anonymous 2", kSize}}}));
  EXPECT_EQ(
      replay({map_file(2 * kSecond, 1), unmap(kDuring), block(RecordKind::allocate, kDuring + kMs, kMapped, kSize, 2)},
             {long_walk({file_at(kMapped)}), later}),
      (std::vector<Seen>{{{"file_cache 1", kSize}}, {{"heap_live 2", kSize}}}));
}

TEST(WalkUnderWay, WhatIsMovedIsSeenAtEitherPlace) {
  trace::RemapRecord moved{};
  moved.old_address = kMapped;
  moved.new_address = kMapped + 8 * kSize;
  moved.old_size_bytes = moved.new_size_bytes = kSize;
  moved.stack_id = 2;
  const std::vector<ByteVector> records{map_file(2 * kSecond, 1), record(RecordKind::remap, kDuring, moved)};
  const ByteVector later = walk(4 * kSecond, {file_at(kMapped), file_at(kMapped + 8 * kSize)});
  EXPECT_EQ(replay(records, {long_walk({file_at(kMapped)}), later}),
            (std::vector<Seen>{{{"file_cache 1", kSize}}, {{"file_cache 1", kSize}, {"file_cache 0", kSize}}}));
  EXPECT_EQ(replay(records, {long_walk({file_at(kMapped + 8 * kSize)})}),
            (std::vector<Seen>{{{"file_cache 1", kSize}}}));
}

// free() unmaps such a block where no hook sees it.
TEST(WalkUnderWay, ABlockThatGlibcMappedIsLiveUntilItsPagesAreGone) {
  const std::uint64_t address = kMapped + 16, size = kSize - 16;
  const ByteVector made = block(RecordKind::allocate, 2 * kSecond, address, size, 1);
  const ByteVector freed = block(RecordKind::release, kDuring, address, 0, 0);
  const std::vector<ByteVector> walks{long_walk({anonymous_at(kMapped)}), walk(4 * kSecond, {anonymous_at(kMapped)})};
  const auto seen = replay({made, freed}, walks);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].at("heap_live 1"), static_cast<std::int64_t>(size));
  EXPECT_EQ(seen[1].count("heap_live 1"), 0U);
  EXPECT_EQ(replay({made, freed, block(RecordKind::release_undone, kDuring + kMs, address, 0, 0)}, walks).at(1),
            seen[0]);
}

TEST(WalkUnderWay, AForkMeanwhileInheritsNothingOfIt) {
  TestRecording recording;
  recording.add(100,
                {segment(1, 0,
                         job({map(2 * kSecond, kMapped, kSize, 1), unmap(kDuring),
                              process_record(RecordKind::fork, kDuring + kMs, 101)}))},
                {{trace::FrameKind::walk, long_walk({anonymous_at(kMapped)})}});
  recording.add(
      101,
      {segment(2, 0,
               joined({attach(kDuring + 2 * kMs, 101, 100, trace::Born::fork), inherited(kDuring + 3 * kMs, {})}))},
      {{trace::FrameKind::walk, walk(4 * kSecond, {file_at(kMapped)})}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok());
  EXPECT_EQ(accounts(*account, account->processes.at(0)), (std::vector<Seen>{{{"anonymous 1", kSize}}}));
  EXPECT_EQ(accounts(*account, account->processes.at(1)), (std::vector<Seen>{{{"file_cache 0", kSize}}}));
}

// What a child threw away while it was walked was its inheritance when it was seen.
TEST(WalkUnderWay, InheritedPagesThatAreDroppedMeanwhile) {
  const auto seen_by_child = [](std::uint64_t dropped_ns) {
    TestRecording recording;
    recording.add(
        100,
        {segment(1, 0,
                 job({map(2 * kSecond, kMapped, kSize, 1), process_record(RecordKind::fork, 2 * kSecond + 1, 101)}))},
        {});
    recording.add(
        101,
        {segment(
            2, 0,
            joined({attach(2 * kSecond + 2, 101, 100, trace::Born::fork), inherited(2 * kSecond + 3, {{kMapped, 64}}),
                    range_record(RecordKind::advise, dropped_ns, kMapped, kSize, MADV_DONTNEED)}))},
        {{trace::FrameKind::walk, long_walk({{.start = kMapped, .path = {}, .runs = {{PageBits::present, 64}}}})}});
    recording.write_manifest();
    const auto account = load_account(recording.path());
    EXPECT_TRUE(account.ok());
    return accounts(*account, account->processes.at(1)).at(0);
  };
  EXPECT_EQ(seen_by_child(kDuring), (Seen{{"fork_shared 1", kSize}}));
  EXPECT_EQ(seen_by_child(kBegin - kMs), (Seen{{"anonymous 1", kSize}}));  // this call is stamped when it is done
}

// The collector learns a moment later that the runtime takes itself down, and what is freed by then says nothing.
TEST(WalkUnderWay, WhatATeardownFreesWasHeldToTheEnd) {
  const ByteVector mapped = map_file(2 * kSecond, 1);
  const ByteVector teardown = process_record(RecordKind::teardown, kDuring, 100);
  const auto walk_at = [](std::uint64_t time_ns, trace::WalkTrigger trigger, bool held) {
    return walk(time_ns, {held ? file_at(kMapped) : anonymous_at(0x20000000, 1)}, 0, trigger);
  };
  const ByteVector before = walk_at(kBegin, trace::WalkTrigger::growth, true);
  const ByteVector asked = walk_at(kDuring + 5 * kMs, trace::WalkTrigger::exit, true);
  const ByteVector after = walk_at(kDuring + 9 * kMs, trace::WalkTrigger::phase, false);
  const ByteVector long_after = walk_at(kDuring + 3 * kSecond, trace::WalkTrigger::growth, false);
  const Seen held{{"file_cache 1", kSize}}, freed{{"unknown 0", 4096}};
  EXPECT_EQ(replay({mapped, teardown, unmap(kDuring + 6 * kMs)}, {before, after}), (std::vector<Seen>{held}));
  EXPECT_EQ(replay({mapped, teardown, unmap(kDuring + 6 * kMs)}, {before, asked, after}),
            (std::vector<Seen>{held, held}));
  EXPECT_EQ(replay({mapped, teardown, unmap(kDuring + 6 * kMs)}, {before, after, long_after}),
            (std::vector<Seen>{held, freed}));                                                           // it lives on
  EXPECT_EQ(replay({mapped, teardown, unmap(kDuring + 6 * kMs)}, {after}), (std::vector<Seen>{freed}));  // all there is
  EXPECT_EQ(replay({mapped, unmap(kDuring + 6 * kMs)}, {before, after}), (std::vector<Seen>{held, freed}));
}

}  // namespace
}  // namespace whyrss::walk_under_way_test
