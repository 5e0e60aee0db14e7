// Compact records into columns and back: random records, what is not taken, damaged payloads.
#include "recording/block_columns.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "compact_builder.h"
#include "recording/lease_reader.h"
#include "recording/run_decoder.h"

namespace whyrss::block_columns_test {
namespace {

using namespace testing_support;
using trace::RecordKind;

bool same(const BlockEvent& a, const BlockEvent& b) {
  return a.ticks == b.ticks && a.address == b.address && a.size_bytes == b.size_bytes &&
         (a.is_release() || a.stack_id == b.stack_id);
}

struct Decoded {
  bool readable = false, whole = true;
  std::vector<BlockRun> runs;
  std::vector<std::vector<BlockEvent>> events;  // of each run
};

// `batch` events at a time.
Decoded decode(ByteVector payload, std::size_t batch = 7, std::uint32_t from_offset = 0) {
  Decoded decoded;
  const std::size_t size_bytes = payload.size();
  payload.resize(size_bytes + kPayloadSlack);
  PayloadRuns of_payload;
  const auto bytes = std::span(payload).first(size_bytes);
  decoded.readable = read_runs(bytes, size_bytes, of_payload);
  decoded.runs = of_payload.runs;
  if (!decoded.readable) return decoded;
  for (std::size_t i = 0; i < decoded.runs.size(); ++i) {
    auto& events = decoded.events.emplace_back();
    RunDecoder decoder;
    decoded.whole = decoder.begin(bytes, of_payload, i, from_offset) && decoded.whole;
    std::vector<BlockEvent> some(batch);
    while (const std::size_t count = decoder.read(some))
      events.insert(events.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return decoded;
}

// Takes in `chunk` from progress.offset on; returns what the columns do not hold.
std::vector<LeaseReader::Other> take(const ByteVector& chunk, LeaseProgress& progress, BlockColumns& columns) {
  std::vector<LeaseReader::Other> others;
  LeaseReader reader(std::span<const std::byte>(chunk).subspan(progress.offset), {.tid = 5, .lost_before = 2}, progress,
                     columns);
  while (const auto other = reader.next()) others.push_back(*other);
  return others;
}

struct RandomChunk {
  ByteVector bytes;
  std::vector<BlockEvent> events;
  std::vector<std::size_t> ends;  // of records
};

RandomChunk random_chunk(std::mt19937_64& random) {
  RandomChunk chunk;
  std::uint64_t ticks = random() >> 8;
  chunk.bytes = clock_at(1000, ticks);
  std::uint64_t address = 0x5555'0000'0000;
  while (chunk.bytes.size() + 64 < trace::kChunkBytes) {
    chunk.ends.push_back(chunk.bytes.size());
    const auto since = static_cast<std::uint32_t>(random() >> (32 + random() % 33) % 64);
    // Near and far, up and down, the lowest and the highest.
    address =
        random() % 8 == 0 ? (random() % (std::uint64_t{1} << 48)) & ~std::uint64_t{7} : address + random() % 256 * 8;
    address %= std::uint64_t{1} << 48;
    if (random() % 50 == 0) {
      append(chunk.bytes, stack(5, 7, {1, 2, 3}).data(), stack(5, 7, {1, 2, 3}).size());
      continue;
    }
    ticks += since;
    ByteVector bytes;
    if (random() % 2 == 0) {
      const auto size = static_cast<std::uint32_t>(random() % (random() % 2 == 0 ? 256 : 65536));
      const auto stack_id = static_cast<std::uint32_t>(random() % 3 == 0 ? 0 : random() >> (32 + random() % 32));
      bytes = compact_allocate(since, address, size, stack_id);
      chunk.events.push_back({ticks, address, size, stack_id});
    } else {
      bytes = compact_release(since, address);
      chunk.events.push_back({ticks, address, BlockEvent::kReleased, 0});
    }
    append(chunk.bytes, bytes.data(), bytes.size());
  }
  return chunk;
}

TEST(BlockColumns, GivesBackWhatItTook) {
  std::mt19937_64 random(7);
  BlockColumns columns(0);
  for (int round = 0; round < 40; ++round) {
    std::vector<RandomChunk> chunks;
    for (int i = 0; i < 3; ++i) chunks.push_back(random_chunk(random));
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      LeaseProgress progress{.lease = i + 1, .offset = 0, .timed = false, .ticks = 0};
      for (const LeaseReader::Other& other : take(chunks[i].bytes, progress, columns))
        EXPECT_EQ(other.header.kind, RecordKind::stack);
      EXPECT_EQ(progress.offset, chunks[i].bytes.size());
      count += chunks[i].events.size();
    }
    const std::size_t expected_bytes = columns.payload_bytes();
    const ByteVector payload = columns.take_payload();
    EXPECT_LE(payload.size(), expected_bytes);
    EXPECT_GE(payload.size() + trace::kChunkBytes, expected_bytes);
    EXPECT_TRUE(columns.empty());
    const Decoded decoded = decode(payload, 1 + random() % 300);
    ASSERT_TRUE(decoded.readable && decoded.whole);
    ASSERT_EQ(decoded.runs.size(), chunks.size());  // descriptions do not cut runs
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      EXPECT_EQ(decoded.runs[i].lease, i + 1);
      EXPECT_EQ(decoded.runs[i].tid, 5U);
      EXPECT_EQ(decoded.runs[i].lost_before, 2U);
      EXPECT_EQ(decoded.runs[i].clock_ns, 1000U);
      EXPECT_EQ(decoded.runs[i].bytes, chunks[i].bytes.size());
      EXPECT_EQ(decoded.runs[i].last_ticks, chunks[i].events.back().ticks);
      ASSERT_EQ(decoded.events[i].size(), chunks[i].events.size());
      for (std::size_t k = 0; k < chunks[i].events.size(); ++k)
        ASSERT_TRUE(same(decoded.events[i][k], chunks[i].events[k]));
      count -= chunks[i].events.size();
    }
    EXPECT_EQ(count, 0U);
  }
}

TEST(BlockColumns, RoundsTicksDownAndLosesNoTime) {
  std::mt19937_64 random(11);
  for (const std::uint32_t shift : {1U, 4U, kMostTickShift}) {
    const RandomChunk chunk = random_chunk(random);
    const std::size_t cut = chunk.ends[chunk.ends.size() / 2];
    BlockColumns columns(shift);
    LeaseProgress progress{.lease = 9, .offset = 0, .timed = false, .ticks = 0};
    take({chunk.bytes.begin(), chunk.bytes.begin() + static_cast<std::ptrdiff_t>(cut)}, progress, columns);
    columns.add_clock(5, 77);  // so that the rest is another run
    take(chunk.bytes, progress, columns);
    const Decoded decoded = decode(columns.take_payload());
    ASSERT_EQ(decoded.runs.size(), 3U);
    EXPECT_EQ(decoded.runs[1].base_ticks, 77U);
    std::size_t i = 0;
    for (std::size_t run = 0; run < decoded.runs.size(); ++run) {
      for (const BlockEvent& event : decoded.events[run])
        ASSERT_EQ(event.ticks, chunk.events[i++].ticks >> shift << shift);
      if (decoded.events[run].empty()) continue;
      EXPECT_EQ(decoded.runs[run].first_ticks, decoded.events[run].front().ticks);
      EXPECT_EQ(decoded.runs[run].last_ticks, decoded.events[run].back().ticks);
    }
    EXPECT_EQ(i, chunk.events.size());
  }
}

TEST(BlockColumns, AChunkMayComeInPieces) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 40; ++round) {
    const RandomChunk chunk = random_chunk(random);
    const std::size_t cut = chunk.ends[random() % chunk.ends.size()];
    BlockColumns columns(0);
    LeaseProgress progress{.lease = 9, .offset = 0, .timed = false, .ticks = 0};
    ByteVector front = chunk.bytes;
    front.resize(cut);
    take(front, progress, columns);
    const ByteVector first = columns.take_payload();
    take(chunk.bytes, progress, columns);
    std::vector<BlockEvent> events;
    for (const ByteVector& payload : {first, columns.take_payload()})
      for (const auto& run : decode(payload).events) events.insert(events.end(), run.begin(), run.end());
    ASSERT_EQ(events.size(), chunk.events.size());
    for (std::size_t i = 0; i < events.size(); ++i) ASSERT_TRUE(same(events[i], chunk.events[i]));
  }
}

TEST(BlockColumns, LeavesOutWhatWasReadBefore) {
  const ByteVector chunk = joined({clock_at(1, 100), compact_allocate(5, 64, 8, 1), compact_release(5, 64),
                                   stack(5, 7, {1}), compact_allocate(5, 128, 8, 2)});
  BlockColumns columns(0);
  LeaseProgress progress{.lease = 1, .offset = 0, .timed = false, .ticks = 0};
  take(chunk, progress, columns);
  const ByteVector payload = columns.take_payload();
  const auto count = [&](std::uint32_t from) { return decode(payload, 7, from).events.at(0).size(); };
  EXPECT_EQ(count(0), 3U);
  EXPECT_EQ(count(24), 3U);
  EXPECT_EQ(count(48), 2U);
  EXPECT_EQ(count(64), 1U);
  EXPECT_EQ(count(static_cast<std::uint32_t>(chunk.size()) - 24), 1U);
  EXPECT_EQ(count(static_cast<std::uint32_t>(chunk.size())), 0U);
  EXPECT_EQ(decode(payload, 7, 64).events[0][0].ticks, 115U);
}

TEST(BlockColumns, ARunEndsWhereOrderMatters) {
  const ByteVector chunk = joined({clock_at(1, 100), compact_allocate(5, 64, 8, 1), map(5, 4096, 4096, 1),
                                   compact_release(7, 64), clock_at(2, 1000), compact_release(1, 72)});
  BlockColumns columns(0);
  LeaseProgress progress{.lease = 1, .offset = 0, .timed = false, .ticks = 0};
  const auto others = take(chunk, progress, columns);
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].offset, 48U);
  const Decoded decoded = decode(columns.take_payload());
  ASSERT_EQ(decoded.runs.size(), 3U);
  EXPECT_EQ(decoded.runs[0].bytes, 48U);
  EXPECT_EQ(decoded.runs[1].offset, 48U + 64);
  EXPECT_EQ(decoded.runs[1].first_ticks, 112U);
  EXPECT_EQ(decoded.runs[2].base_ticks, 1000U);
  EXPECT_EQ(decoded.events[2].at(0).ticks, 1001U);
}

TEST(BlockColumns, DoesNotTakeWhatItCannotTellOrTime) {
  const auto refused = [](const ByteVector& chunk) {
    BlockColumns columns(0);
    LeaseProgress progress{.lease = 1, .offset = 0, .timed = false, .ticks = 0};
    const auto others = take(chunk, progress, columns);
    EXPECT_EQ(progress.offset, chunk.size());
    return others.size();
  };
  EXPECT_EQ(refused(joined({compact_allocate(5, 64, 8, 1), clock_at(1, 7), compact_release(5, 64)})), 1U);
  EXPECT_EQ(refused(joined({clock_at(1, 7), compact_allocate(5, 65, 8, 1)})), 1U);
  EXPECT_EQ(refused(joined({clock_at(1, 7), compact_allocate(5, 64, 1U << 16, 1)})), 1U);
  EXPECT_EQ(refused(joined({clock_at(0, 7), compact_release(5, 64)})), 2U);
  ByteVector cut = joined({clock_at(1, 7), compact_allocate(5, 64, 8, 1)});
  cut.resize(cut.size() - 8);
  EXPECT_EQ(refused(cut), 1U);
  ByteVector other_size = joined({clock_at(1, 7), compact_release(5, 64), compact_release(5, 64)});
  other_size[24] = std::byte{24};
  EXPECT_EQ(refused(other_size), 2U);  // and what is behind it
}

TEST(BlockColumns, DamagedPayloadsAreSeenOrHarmless) {
  std::mt19937_64 random(9);
  BlockColumns columns(0);
  for (std::uint64_t lease = 1; lease < 4; ++lease) {
    LeaseProgress progress{.lease = lease, .offset = 0, .timed = false, .ticks = 0};
    take(random_chunk(random).bytes, progress, columns);
  }
  const ByteVector payload = columns.take_payload();
  for (std::size_t size = 0; size < payload.size(); size += 1 + size / 16) {
    ByteVector cut(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode(cut).readable) << size;
  }
  for (int i = 0; i < 3000; ++i) {
    ByteVector damaged = payload;
    const std::size_t reach = random() % 2 == 0 ? 8 + 3 * sizeof(BlockRun) : payload.size();
    for (int k = 0; k < 3; ++k) damaged[random() % reach] = std::byte{static_cast<std::uint8_t>(random())};
    for (const auto& events : decode(damaged).events) EXPECT_LE(events.size(), trace::kChunkBytes / 16);
  }
}

}  // namespace
}  // namespace whyrss::block_columns_test
