// The collector's drain, fed through a pool in this process: what ends up in which frames.
#include "collect/loop/drain.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "collect/read/backing.h"
#include "compact_builder.h"
#include "file_tree.h"
#include "recording/frame_order.h"
#include "recording/run_decoder.h"

namespace whyrss::drain_test {
namespace {

using namespace testing_support;
using trace::RecordKind;

constexpr std::uint32_t kPid = 77;

// As long as it lives no file may be written.
class NoRoom {
 public:
  NoRoom() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
  ~NoRoom() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

class DrainTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::uint64_t bytes = trace::pool_bytes(kChunks, 4);
    mapping_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapping_, MAP_FAILED);
    pool_ = trace::format_pool(mapping_, kChunks, 4, kSession);
    context_.directory = directory_;
    context_.host = "node";
    context_.session = kSession;
    context_.resolver = &resolver_;
    context_.faults = &faults_;
    process_ = std::make_unique<ProcessFollow>(context_, kKey, 0);
    drain_ = std::make_unique<Drain>(pool_);
  }
  void TearDown() override { munmap(mapping_, trace::pool_bytes(kChunks, 4)); }

  [[nodiscard]] trace::Writer writer(std::uint32_t tid) const {
    return {.pool = pool_, .pid = kPid, .tid = tid, .slot = 0, .start_ticks = kKey.start_ticks};
  }
  static bool write(const trace::Writer& writer, trace::Lease& lease, const ByteVector& record) {
    std::byte* to = reserve(writer, lease, record.size());
    if (to == nullptr) return false;
    std::memcpy(to, record.data(), record.size());
    publish(lease, record.size());
    return true;
  }
  void round(bool everything = false, bool storable = true) {
    const auto target = [&](ProcessKey) { return storable ? process_.get() : nullptr; };
    const auto gone = [](ProcessKey, std::uint32_t) { return false; };
    now_ns_ += 1000;
    drain_->round(now_ns_, {}, everything, target, gone);
  }

  struct Stored {
    std::vector<RecordKind> others;
    std::map<std::uint32_t, std::vector<BlockEvent>> events;  // by tid
    std::vector<BlockRun> runs;
  };
  [[nodiscard]] Stored stored() const {
    const auto text = read_file(directory_ + "/node.77.7/events.zst");
    EXPECT_TRUE(text.ok());
    const auto file = parse_frame_file(std::as_bytes(std::span(*text)), "events");
    EXPECT_TRUE(file.ok());
    Stored stored;
    for (const RawFrame& frame : file->frames) {
      if (frame.kind == trace::FrameKind::blocks)
        add_blocks(frame.payload, stored);
      else
        add_segments(frame.payload, stored);
    }
    return stored;
  }

  static constexpr std::uint32_t kChunks = 128;
  static constexpr ProcessKey kKey{.pid = kPid, .start_ticks = 7};
  FileTree tree_;
  const std::string& directory_ = tree_.path();
  void* mapping_ = nullptr;
  trace::PoolView pool_;
  BackingResolver resolver_;
  WriteFaults faults_{directory_};
  FollowContext context_;
  std::unique_ptr<ProcessFollow> process_;
  std::unique_ptr<Drain> drain_;
  std::int64_t now_ns_ = 1'000'000;

 private:
  static void add_blocks(ByteVector payload, Stored& stored) {
    const std::size_t size_bytes = payload.size();
    payload.resize(size_bytes + kPayloadSlack);
    PayloadRuns of_payload;
    ASSERT_TRUE(read_runs(payload, size_bytes, of_payload));
    const auto& runs = of_payload.runs;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      RunDecoder decoder;
      ASSERT_TRUE(decoder.begin(payload, of_payload, i, 0));
      std::vector<BlockEvent> some(100);
      auto& events = stored.events[runs[i].tid];
      while (const std::size_t count = decoder.read(some))
        events.insert(events.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
      stored.runs.push_back(runs[i]);
    }
  }
  static void add_segments(const ByteVector& payload, Stored& stored) {
    for (std::size_t at = 0; at + sizeof(trace::SegmentHeader) <= payload.size();) {
      trace::SegmentHeader segment{};
      std::memcpy(&segment, payload.data() + at, sizeof segment);
      at += sizeof segment;
      for (const std::size_t end = at + segment.bytes; at < end;) {
        trace::RecordHeader header{};
        ASSERT_LE(at + sizeof header, payload.size());
        std::memcpy(&header, payload.data() + at, sizeof header);
        stored.others.push_back(header.kind);
        at += header.size_bytes;
      }
    }
  }
};

TEST_F(DrainTest, WhatHasNoPlaceIsLeft) {
  trace::Lease lease;
  const ByteVector mark = text(RecordKind::mark, 1, "x");
  ASSERT_TRUE(write(writer(1), lease, mark));
  round(true, false);
  EXPECT_EQ(drain_->left_bytes(), mark.size());
  round(true, true);
  EXPECT_EQ(drain_->left_bytes(), 0U);
}

TEST_F(DrainTest, FilesThatCouldNotBeMadeAreMadeLater) {
  const std::string directory = directory_ + "/node.78.7";
  std::filesystem::create_directories(directory + "/pages.zst");
  ProcessFollow process(context_, {.pid = 78, .start_ticks = 7}, 0);
  process.write_process(true);
  ASSERT_TRUE(faults_.any());
  EXPECT_EQ(faults_.list()[0].file, "node.78.7/pages.zst");
  EXPECT_EQ(faults_.list()[0].frames, 1);
  EXPECT_EQ(process.close(), (ClosedProcess{"node.78.7", 0, std::nullopt}));
  std::filesystem::remove(directory + "/pages.zst");
  process.write_process(true);
  EXPECT_EQ(process.close(), (ClosedProcess{"node.78.7", 0, 1}));
  EXPECT_GT(faults_.list()[0].until_ns, 0);
}

TEST_F(DrainTest, WhatCouldNotBeWrittenLeavesNoGap) {
  process_->write_process(true);
  {
    const NoRoom no_room;
    process_->write_process(true);
  }
  process_->write_process(true);
  EXPECT_EQ(faults_.list()[0].frames, 1);
  EXPECT_EQ(process_->close().pages_frames, 2U);
  auto file = read_frame_file(directory_ + "/node.77.7/pages.zst");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->frames.size(), 2U);
  EXPECT_TRUE(check_frames(*file, 2).empty());
}

TEST_F(DrainTest, PutsCompactRecordsInColumnsAndLeavesOthersAsTheyAre) {
  trace::Lease lease;
  const trace::Writer thread = writer(3);
  ASSERT_TRUE(write(thread, lease, clock_at(5, 100)));
  ASSERT_TRUE(write(thread, lease, compact_allocate(16, 0x1000, 24, 4)));
  ASSERT_TRUE(write(thread, lease, stack(5, 8, {0x5101})));
  ASSERT_TRUE(write(thread, lease, compact_allocate(32, 0x1040, 32, 8)));
  round();  // looks; nothing is due yet
  EXPECT_TRUE(stored().runs.empty());
  ASSERT_TRUE(write(thread, lease, map(6, 0x7000000, 8192, 1)));
  ASSERT_TRUE(write(thread, lease, compact_release(48, 0x1000)));
  round(true);
  EXPECT_EQ(drain_->compact_records(), 3U);
  const Stored all = stored();
  EXPECT_EQ(all.others, (std::vector{RecordKind::stack, RecordKind::map}));
  ASSERT_EQ(all.events.at(3).size(), 3U);
  EXPECT_EQ(all.events.at(3)[1].address, 0x1040U);
  EXPECT_EQ(all.events.at(3)[1].stack_id, 8U);
  EXPECT_TRUE(all.events.at(3)[2].is_release());
  EXPECT_EQ(all.events.at(3)[2].ticks / 16, 196U / 16);
  round(true);
  EXPECT_EQ(stored().runs.size(), all.runs.size());  // once
}

TEST_F(DrainTest, AnnouncesWhatIsGivenUpLazily) {
  trace::Lease lease;
  const auto advise = [&](std::uint64_t size_bytes, int advice) {
    ASSERT_TRUE(write(writer(3), lease, range_record(RecordKind::advise, 6, 0x7000000, size_bytes, advice)));
  };
  advise(4096, MADV_FREE);
  advise(4096, MADV_DONTNEED);
  advise(1 << 24, MADV_DONTNEED);
  advise(1 << 24, MADV_HUGEPAGE);
  round();
  const std::vector<ProcessEvent> process_events = drain_->take_process_events();
  ASSERT_EQ(process_events.size(), 1U);
  EXPECT_EQ(process_events[0].kind, RecordKind::advise);
}

TEST_F(DrainTest, GivesChunksBackBeforeThePoolIsFull) {
  trace::Lease lease;
  const trace::Writer thread = writer(3);
  std::uint64_t written = 0;
  for (int turn = 0; turn < 20; ++turn) {
    // A third of the pool at a time: with what stayed, more than all of it if nothing came back.
    for (std::uint32_t i = 0; i < kChunks / 3 * (trace::kChunkBytes / 40); ++i) {
      if (lease.chunk == nullptr || lease.used + 24 > trace::kChunkBytes) {
        ASSERT_TRUE(write(thread, lease, clock_at(5 + written, 100 + written)));
      }
      const std::uint64_t address = 0x1000 + i % 512 * 16;
      ASSERT_TRUE(
          write(thread, lease, written % 2 == 0 ? compact_allocate(1, address, 24, 4) : compact_release(1, address)));
      ++written;
    }
    round();
  }
  seal(lease);
  round(true);
  EXPECT_EQ(pool_.header->dropped_records.load(), 0U);
  EXPECT_EQ(stored().events.at(3).size(), written);
  for (std::uint32_t i = 0; i < kChunks; ++i) EXPECT_EQ(pool_.chunks[i].state.load(), trace::ChunkState::free);
}

TEST_F(DrainTest, WhatCannotBeStoredNowIsStoredLater) {
  trace::Lease lease;
  ASSERT_TRUE(write(writer(3), lease, clock_at(5, 100)));
  ASSERT_TRUE(write(writer(3), lease, compact_allocate(1, 0x1000, 24, 4)));
  round(true, false);
  ASSERT_TRUE(write(writer(3), lease, compact_release(1, 0x1000)));
  round(true, false);
  EXPECT_TRUE(stored().runs.empty());
  round(true);
  EXPECT_EQ(stored().events.at(3).size(), 2U);
}

TEST_F(DrainTest, WhatFindsNoRoomIsStoredLaterWhileThePoolHasPlenty) {
  trace::Lease lease;
  ASSERT_TRUE(write(writer(3), lease, clock_at(5, 100)));
  ASSERT_TRUE(write(writer(3), lease, compact_allocate(1, 0x1000, 24, 4)));
  ASSERT_TRUE(write(writer(3), lease, stack(5, 8, {0x5101})));
  seal(lease);
  {
    const NoRoom no_room;
    round();
  }
  round();  // too soon for another try
  EXPECT_TRUE(stored().runs.empty());
  now_ns_ += 2'000'000'000;
  round();
  EXPECT_EQ(stored().events.at(3).size(), 1U);
  EXPECT_EQ(stored().others.size(), 1U);
  EXPECT_FALSE(faults_.any());
}

TEST_F(DrainTest, WhatFindsNoRoomIsGivenUpBeforeThePoolIsFull) {
  std::int64_t written = 0;
  {
    const NoRoom no_room;
    for (std::uint32_t chunk = 0; chunk < kChunks * 3; ++chunk) {
      trace::Lease lease;
      ASSERT_TRUE(write(writer(3), lease, clock_at(5 + chunk, 100 + chunk))) << "the pool is full";
      ASSERT_TRUE(write(writer(3), lease, compact_allocate(1, 0x1000, 24, 4)));
      ASSERT_TRUE(write(writer(3), lease, stack(5, 8, {0x5101})));
      seal(lease);
      written += 2;
      round();
    }
    round(true);
  }
  for (std::uint32_t i = 0; i < kChunks; ++i) EXPECT_EQ(pool_.chunks[i].state.load(), trace::ChunkState::free);
  ASSERT_TRUE(faults_.any());
  EXPECT_EQ(faults_.list()[0].error, "File too large");
  EXPECT_EQ(faults_.list()[0].events, written);
  trace::Lease lease;
  ASSERT_TRUE(write(writer(3), lease, stack(5, 8, {0x5101})));
  round(true);
  EXPECT_EQ(stored().others.size(), 1U);
  EXPECT_GT(faults_.list()[0].until_ns, 0);
}

// As with /dev/shm full: no more chunks than those that have their space.
TEST_F(DrainTest, WhatFindsNoRoomIsGivenUpBeforeAPoolThatCannotGrowIsFull) {
  constexpr std::uint32_t kBare = kChunks - trace::kReadyChunks;
  pool_ = trace::format_pool(mapping_, kChunks, 4, kSession, kBare);
  drain_ = std::make_unique<Drain>(pool_);
  drain_->set_can_grow(false);
  const NoRoom no_room;
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    trace::Lease lease;
    ASSERT_TRUE(write(writer(3), lease, stack(5 + chunk, 8, {0x5101})));
    seal(lease);
    round();
  }
  std::uint32_t bare = 0;
  for (std::uint32_t i = 0; i < kChunks; ++i) bare += pool_.chunks[i].state.load() == trace::ChunkState::bare ? 1 : 0;
  EXPECT_EQ(bare, kBare) << "a writer had to ask for space";
  EXPECT_EQ(faults_.list().at(0).error, "File too large");
}

TEST_F(DrainTest, WithoutAClockRecordsStayAsTheyAre) {
  trace::Lease lease;
  ASSERT_TRUE(write(writer(3), lease, compact_allocate(1, 0x1000, 24, 4)));
  ASSERT_TRUE(write(writer(3), lease, compact_release(1, 0x1000)));
  round(true);
  EXPECT_EQ(stored().others, (std::vector{RecordKind::compact_allocate, RecordKind::compact_release}));
  EXPECT_TRUE(stored().events.empty());
}

TEST_F(DrainTest, ScribbledLengthsStopTheirChunkOnly) {
  trace::Lease first, second;
  ASSERT_TRUE(write(writer(3), first, clock_at(5, 100)));
  ByteVector damaged = compact_allocate(1, 0x1000, 24, 4);
  damaged[0] = std::byte{3};
  ASSERT_TRUE(write(writer(3), first, damaged));
  ASSERT_TRUE(write(writer(4), second, clock_at(5, 100)));
  ASSERT_TRUE(write(writer(4), second, compact_allocate(1, 0x1000, 24, 4)));
  round(true);
  EXPECT_EQ(stored().events.at(4).size(), 1U);
  EXPECT_FALSE(stored().events.contains(3) && !stored().events.at(3).empty());
}

}  // namespace
}  // namespace whyrss::drain_test
