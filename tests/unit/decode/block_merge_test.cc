// Compact records of several threads as one stream: order, places among other records, what came twice, clocks.
#include "decode/block_merge.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "compact_builder.h"
#include "decode/tick_clock.h"
#include "recording/lease_reader.h"
#include "replay/small_blocks.h"

namespace whyrss::block_merge_test {
namespace {

using namespace testing_support;
using trace::RecordKind;

constexpr std::uint64_t kEnd = std::numeric_limits<std::uint64_t>::max();

struct Seen {
  std::uint64_t ticks, address;
  std::uint32_t tid;
  friend bool operator==(const Seen&, const Seen&) = default;
};

class SeenSink final : public BlockMerge::Sink {
 public:
  void apply(std::span<const BlockEvent> events, std::uint32_t tid) override {
    for (const BlockEvent& event : events) seen.push_back({event.ticks, event.address, tid});
  }
  std::vector<Seen> seen;
};

// One process's events: leases are drained into frames as the collector does.
class TestStream {
 public:
  void drain(std::uint64_t lease, std::uint32_t tid, const ByteVector& chunk, std::uint32_t from = 0) {
    chunks_.add(lease, tid, chunk, from);
  }
  void end_frame() {
    file_.frames.push_back({.kind = trace::FrameKind::blocks, .payload = chunks_.columns.take_payload()});
  }

  BlockMerge& merge() {
    end_frame();
    for (std::uint32_t i = 0; i < chunks_.segments.size(); ++i)
      EXPECT_TRUE(stream_.add_payload(i, chunks_.segments[i]));
    for (std::uint32_t i = 0; i < file_.frames.size(); ++i)
      EXPECT_TRUE(stream_.add_blocks(i, file_.frames[i].payload, file_.frames[i].payload.size()));
    records_ = stream_.records();
    merge_ = std::make_unique<BlockMerge>(file_, stream_, records_);
    return *merge_;
  }
  std::vector<Seen> all() {
    SeenSink sink;
    merge().advance(kEnd, records_.size(), sink);
    return sink.seen;
  }
  [[nodiscard]] const std::vector<EventRecord>& records() const { return records_; }
  [[nodiscard]] const EventStream& stream() const { return stream_; }
  FrameFile& file() { return file_; }

 private:
  DrainedChunks chunks_;
  FrameFile file_;
  EventStream stream_;
  std::vector<EventRecord> records_;
  std::unique_ptr<BlockMerge> merge_;
};

TEST(BlockMerge, ThreadsThatHandAddressesToEachOtherComeByTicks) {
  TestStream stream;
  stream.drain(1, 11,
               joined({clock_at(1, 100), compact_allocate(1, 64, 8, 1), compact_release(20, 128),
                       compact_allocate(20, 64, 8, 1)}));
  stream.drain(2, 12, joined({clock_at(1, 105), compact_allocate(1, 128, 8, 1), compact_release(20, 64)}));
  const std::vector<Seen> expected{{101, 64, 11}, {106, 128, 12}, {121, 128, 11}, {126, 64, 12}, {141, 64, 11}};
  EXPECT_EQ(stream.all(), expected);
}

TEST(BlockMerge, ManyThreadsInManyFramesAreOneOrder) {
  std::mt19937_64 random(3);
  TestStream stream;
  std::uint64_t ticks = 1000;
  std::vector<Seen> expected;
  struct Thread {
    std::uint64_t lease = 0, ticks = 0;
    ByteVector chunk;
    std::uint32_t drained = 0;
  };
  std::vector<Thread> threads(7);
  std::uint64_t lease = 0;
  for (int i = 0; i < 60'000; ++i) {
    const auto tid = static_cast<std::uint32_t>(random() % threads.size());
    Thread& thread = threads[tid];
    if (thread.lease == 0 || thread.chunk.size() + 24 > trace::kChunkBytes) {
      if (thread.lease != 0) stream.drain(thread.lease, tid, thread.chunk);
      thread = {.lease = ++lease, .ticks = ticks, .chunk = clock_at(ticks, ticks), .drained = 0};
    }
    ticks += 1 + random() % 100;
    const std::uint64_t address = 64 + random() % 1000 * 8;
    const auto since = static_cast<std::uint32_t>(ticks - thread.ticks);
    const ByteVector bytes =
        random() % 2 == 0 ? compact_allocate(since, address, 8, 1) : compact_release(since, address);
    append(thread.chunk, bytes.data(), bytes.size());
    thread.ticks = ticks;
    expected.push_back({ticks, address, tid});
    if (random() % 500 == 0) stream.end_frame();
  }
  for (std::uint32_t tid = 0; tid < threads.size(); ++tid)
    if (threads[tid].lease != 0) stream.drain(threads[tid].lease, tid, threads[tid].chunk);
  // In steps, as walks cut it.
  BlockMerge& merge = stream.merge();
  SeenSink sink;
  for (std::uint64_t limit = 0; limit < ticks + 5000; limit += 5000) {
    merge.advance(limit, 0, sink);
    ASSERT_TRUE(sink.seen.empty() || sink.seen.back().ticks <= limit);
  }
  EXPECT_EQ(sink.seen, expected);
  EXPECT_EQ(stream.stream().missing_bytes(), 0U);
}

TEST(BlockMerge, ARecordKeepsItsPlaceInItsThreadWhateverTheClocksSay) {
  TestStream stream;
  // Ticks stand still, as in a program with one thread.
  stream.drain(1, 11,
               joined({clock_at(1000, 100), compact_allocate(1, 64, 8, 1), compact_allocate(0, 128, 8, 1),
                       map(1005, 0x1000, 4096, 1), compact_allocate(0, 192, 8, 1)}));
  stream.drain(2, 12, joined({clock_at(1000, 100), compact_allocate(9, 256, 8, 1)}));
  BlockMerge& merge = stream.merge();
  ASSERT_EQ(stream.records().size(), 1U);
  for (const std::uint64_t reported : {std::uint64_t{0}, kEnd}) {
    EXPECT_EQ(merge.limit_for(stream.records()[0], reported), 101U);
  }
  SeenSink sink;
  merge.advance(101, 0, sink);
  EXPECT_EQ(sink.seen, (std::vector<Seen>{{101, 64, 11}, {101, 128, 11}}));
  merge.advance(150, 0, sink);
  EXPECT_EQ(sink.seen.size(), 3U);  // the other thread goes on
  merge.advance(101, 1, sink);
  EXPECT_EQ(sink.seen.back(), (Seen{101, 192, 11}));
}

TEST(BlockMerge, WhatWasStoredTwiceCountsOnce) {
  const ByteVector chunk = joined({clock_at(1, 100), compact_allocate(1, 64, 8, 1), stack(1, 7, {1}),
                                   compact_allocate(1, 128, 8, 1), compact_release(1, 64)});
  const ByteVector start(chunk.begin(), chunk.begin() + 48);
  TestStream stream;
  stream.drain(5, 1, start);
  stream.end_frame();
  stream.drain(5, 1, chunk);  // the pool still had it
  stream.end_frame();
  stream.drain(5, 1, chunk);
  EXPECT_EQ(stream.all(), (std::vector<Seen>{{101, 64, 1}, {102, 128, 1}, {103, 64, 1}}));
  EXPECT_TRUE(stream.records().empty());  // but for a stack
  EXPECT_EQ(stream.stream().stack_runs().at(0).first_id, 7U);
  EXPECT_EQ(stream.stream().missing_bytes(), 0U);
}

TEST(BlockMerge, AGapIsMissedAndWhatHasNoClockIsCounted) {
  TestStream stream;
  const ByteVector chunk =
      joined({clock_at(1, 100), compact_allocate(1, 64, 8, 1), compact_release(1, 64), compact_release(1, 128)});
  stream.drain(5, 1, chunk, 48);  // without its clock: two records that nobody can time
  EXPECT_TRUE(stream.all().empty());
  EXPECT_EQ(stream.stream().untimed_records(), 2U);
  EXPECT_EQ(stream.stream().missing_bytes(), 48U);
}

TEST(BlockMerge, AFrameThatCannotBeReadLosesItsEventsOnly) {
  TestStream stream;
  stream.drain(1, 1, joined({clock_at(1, 100), compact_allocate(1, 64, 8, 1), compact_release(1, 64)}));
  stream.end_frame();
  stream.drain(2, 1, joined({clock_at(1, 200), compact_allocate(1, 72, 8, 1)}));
  BlockMerge& merge = stream.merge();
  stream.file().frames[0].payload.clear();
  SeenSink sink;
  merge.advance(kEnd, 0, sink);
  EXPECT_EQ(sink.seen, (std::vector<Seen>{{201, 72, 1}}));
  EXPECT_EQ(merge.unreadable_records(), 2U);
}

TEST(BlockMerge, AnExecEndsTheOtherThreadsOfItsProgram) {
  TestStream stream;
  stream.drain(1, 1, joined({clock_at(1, 100), compact_allocate(1, 64, 8, 1), compact_allocate(500, 72, 8, 1)}));
  stream.drain(3, 1, joined({clock_at(1, 300), compact_allocate(1, 80, 8, 1)}));
  BlockMerge& merge = stream.merge();
  SeenSink sink;
  merge.advance(200, 0, sink);
  merge.skip_before_lease(3);
  merge.advance(kEnd, 0, sink);
  EXPECT_EQ(sink.seen, (std::vector<Seen>{{101, 64, 1}, {301, 80, 1}}));
}

TEST(SmallBlocks, AReleaseThatWasStampedTooLateBelongsToTheBlockBefore) {
  std::vector<BlockEvent> events(4 + BlockMerge::kLookahead);
  const auto apply = [&](std::uint32_t second_tid, std::uint64_t late_by) {
    events[0] = {.ticks = 10, .address = 64, .size_bytes = 8, .stack_id = 0};
    events[1] = {.ticks = 5000, .address = 64, .size_bytes = 16, .stack_id = 0};  // before its release
    events[2] = {.ticks = 5000 + late_by, .address = 64, .size_bytes = BlockEvent::kReleased, .stack_id = 0};
    SmallBlocks blocks;
    StackCache stacks;
    AddressSpace space;
    blocks.apply(std::span(events).first(1), 1, stacks, space);
    blocks.apply(std::span(events).subspan(1, 1), 2, stacks, space);
    blocks.apply(std::span(events).subspan(2, 1), second_tid, stacks, space);
    return blocks.live().size();
  };
  EXPECT_EQ(apply(1, 300), 1U);
  EXPECT_EQ(apply(1, 3000), 0U);  // too long after: it is the new one's
  EXPECT_EQ(apply(2, 300), 0U);   // a thread's own order is certain
}

TEST(TickClock, TellsTicksBetweenAndBeyondReadings) {
  BlockRuns runs;
  const auto add = [&](std::uint64_t lease, std::uint64_t time_ns, std::uint64_t ticks) {
    BlockRun run{};
    run.lease = lease;
    run.clock_ns = time_ns;
    run.base_ticks = ticks;
    runs.add(run, 0, 0);
  };
  add(7, 999'999'999, 1);  // interrupted between the clocks: the collector's are better
  add(0, 1'000'000'000, 5'000'000'000);
  add(0, 2'000'000'000, 7'500'000'000);
  add(0, 3'000'000'000, 10'000'000'000);
  TickClock clock;
  clock.add(runs);
  clock.settle();
  EXPECT_EQ(clock.ticks_at(1'500'000'000), 6'250'000'000U);
  EXPECT_EQ(clock.ticks_at(4'000'000'000), 12'500'000'000U);
  EXPECT_EQ(clock.ticks_at(500'000'000), 3'750'000'000U);
  EXPECT_EQ(clock.ticks_at(0), 2'500'000'000U);
}

TEST(TickClock, WithoutASecondReadingEverythingIsBefore) {
  TickClock none;
  none.settle();
  EXPECT_EQ(none.ticks_at(5), kEnd);
  BlockRuns runs;
  BlockRun run{};
  run.lease = 1;
  run.clock_ns = 1000;
  run.base_ticks = 77;
  runs.add(run, 0, 0);
  TickClock one;
  one.add(runs);
  one.settle();
  EXPECT_EQ(one.ticks_at(999), 76U);
  EXPECT_EQ(one.ticks_at(1000), kEnd);
}

}  // namespace
}  // namespace whyrss::block_merge_test
