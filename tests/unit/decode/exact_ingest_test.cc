// Recordings of exact mode: which small blocks are live at each walk, across threads, forks, kills and losses.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compact_builder.h"
#include "load/load.h"
#include "load/pool_leftovers.h"
#include "replay/replay.h"
#include "shim/trace/pool.h"

namespace whyrss::exact_ingest_test {
namespace {

using namespace testing_support;
using trace::FrameKind;
using trace::PageBits;
using trace::RecordKind;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kRate = 2;  // ticks per ns
constexpr std::uint64_t kHeap = 0x20000000;
constexpr std::uint32_t kOwn = PageBits::present | PageBits::exclusive;

ByteVector exact_attach(std::uint64_t time_ns, std::uint32_t pid, std::uint32_t parent, trace::Born born) {
  ByteVector bytes = attach(time_ns, pid, parent, born);
  const auto mode = trace::Mode::exact;
  std::memcpy(bytes.data() + offsetof(trace::AttachRecord, mode), &mode, sizeof mode);
  return bytes;
}

ByteVector clock_then(std::uint64_t time_ns, const std::vector<ByteVector>& records) {
  return joined({clock_at(time_ns, time_ns * kRate), joined(records)});
}

ByteVector heap_walk(std::uint64_t time_ns, std::uint64_t took_ns = 1) {
  return walk(time_ns, {{.start = kHeap, .path = "[heap]", .runs = {{kOwn, 64}}}}, 0, trace::WalkTrigger::start,
              took_ns);
}

// Processes in memory; says what was live at each walk.
class ExactRun {
 public:
  struct Process {
    ProcessInput input;
    ProcessAccount account;
    DrainedChunks chunks;
  };

  Process& add(std::uint32_t pid) {
    auto& process = processes_.emplace_back(std::make_unique<Process>());
    process->input.pid = pid;
    process->account.pid = static_cast<int>(pid);
    return *process;
  }
  static void add_walk(Process& process, std::uint64_t time_ns, std::uint64_t took_ns = 1) {
    process.input.pages.frames.push_back({.kind = FrameKind::walk, .payload = heap_walk(time_ns, took_ns)});
  }

  // By pid: address -> size at each walk.
  using Live = std::map<std::uint64_t, std::uint32_t>;
  std::map<int, std::vector<Live>> run() {
    std::map<int, std::vector<Live>> seen;
    const auto see = [&](int pid, const Evidence& evidence) {
      Live& live = seen[pid].emplace_back();
      if (evidence.small_blocks == nullptr) return;
      evidence.small_blocks->for_each([&](const LiveBlock& block) { live[block.address] = block.size_bytes; });
      for (const OwnedRange& range : evidence.owned)
        if (range.owner == Owner::block) live[range.start] = static_cast<std::uint32_t>(range.end - range.start);
    };
    Replay replay({.origin_ns = 0, .pool_path = {}, .see_evidence = see}, stacks_);
    for (const auto& process : processes_) {
      // The collector's clock, early and late.
      process->chunks.columns.add_clock(kSecond / 2, kSecond / 2 * kRate);
      process->chunks.columns.add_clock(60 * kSecond, 60 * kSecond * kRate);
      auto& frames = process->input.events.frames;
      for (const ByteVector& payload : process->chunks.segments)
        frames.push_back({.kind = FrameKind::segment, .payload = payload});
      frames.push_back({.kind = FrameKind::blocks, .payload = process->chunks.columns.take_payload()});
      process->input.open_events();
      replay.add(process->input, process->account);
    }
    replay.run();
    return seen;
  }

 private:
  std::vector<std::unique_ptr<Process>> processes_;
  StackTable stacks_;
};

TEST(ExactIngest, AWalkSeesWhatIsLiveThen) {
  ExactRun run;
  ExactRun::Process& process = run.add(100);
  constexpr std::uint32_t kTicks = kRate * kSecond;
  process.chunks.add(
      1, 1,
      joined({exact_attach(kSecond, 100, 1, trace::Born::exec),
              clock_then(kSecond, {compact_allocate(1, kHeap, 24, 1), compact_allocate(1, kHeap + 64, 40, 1),
                                   compact_release(kTicks, kHeap)})}));
  // Another thread, which frees what the first one made, and takes its place.
  process.chunks.add(2, 2,
                     clock_then(3 * kSecond, {compact_release(1, kHeap + 64), compact_allocate(1, kHeap + 64, 56, 1)}));
  for (const std::uint64_t half_seconds : {3U, 5U, 7U}) ExactRun::add_walk(process, half_seconds * kSecond / 2);
  const auto seen = run.run();
  ASSERT_EQ(seen.at(100).size(), 3U);
  EXPECT_EQ(seen.at(100)[0], (ExactRun::Live{{kHeap, 24}, {kHeap + 64, 40}}));
  EXPECT_EQ(seen.at(100)[1], (ExactRun::Live{{kHeap + 64, 40}}));
  EXPECT_EQ(seen.at(100)[2], (ExactRun::Live{{kHeap + 64, 56}}));
  EXPECT_TRUE(process.account.notes.empty());
}

// Its pages may have been seen before free() unmapped them.
TEST(ExactIngest, ALargeBlockThatIsFreedDuringAWalkIsLiveInIt) {
  constexpr std::uint64_t kMapped = 0x7f0000000010;
  constexpr std::uint32_t kSize = 1 << 20, kTicks = kRate * kSecond;
  ExactRun run;
  ExactRun::Process& process = run.add(100);
  process.chunks.add(
      1, 1,
      joined({exact_attach(kSecond, 100, 1, trace::Born::exec), block(RecordKind::allocate, kSecond, kMapped, kSize, 1),
              clock_then(kSecond, {compact_release(kTicks - 1, kMapped)})}));
  ExactRun::add_walk(process, 2 * kSecond, kSecond / 100);
  ExactRun::add_walk(process, 3 * kSecond);
  const auto seen = run.run();
  EXPECT_EQ(seen.at(100), (std::vector<ExactRun::Live>{{{kMapped, kSize}}, {}}));
}

TEST(ExactIngest, WhatIsUnmappedOrGivenBackTakesItsBlocksAlong) {
  constexpr std::uint64_t kMapped = 0x7f0000000000;
  ExactRun run;
  ExactRun::Process& process = run.add(100);
  trace::RangeRecord unmapped{};
  unmapped.address = kMapped;
  unmapped.size_bytes = 4096;
  trace::RangeRecord shrunk{};
  shrunk.address = kHeap + 4096;
  shrunk.size_bytes = kHeap + 3 * 4096;  // the old break
  process.chunks.add(
      1, 1,
      joined({exact_attach(kSecond, 100, 1, trace::Born::exec),
              clock_then(kSecond, {compact_allocate(1, kMapped, 24, 1), compact_allocate(1, kMapped + 4096, 24, 1),
                                   compact_allocate(1, kHeap, 24, 1), compact_allocate(1, kHeap + 8192, 24, 1),
                                   record(RecordKind::unmap, 2 * kSecond, unmapped),
                                   record(RecordKind::break_moved, 2 * kSecond, shrunk),
                                   // The same addresses again, after that.
                                   compact_allocate(0, kMapped, 48, 1)})}));
  ExactRun::add_walk(process, 3 * kSecond);
  EXPECT_EQ(run.run().at(100).at(0), (ExactRun::Live{{kMapped, 48}, {kMapped + 4096, 24}, {kHeap, 24}}));
}

TEST(ExactIngest, AChildGoesOnWithWhatItsParentHadAtTheFork) {
  ExactRun run;
  ExactRun::Process& parent = run.add(100);
  parent.chunks.add(
      1, 100,
      joined({exact_attach(kSecond, 100, 1, trace::Born::exec),
              clock_then(kSecond, {compact_allocate(1, kHeap, 24, 1), compact_allocate(1, kHeap + 64, 40, 1),
                                   process_record(RecordKind::fork, 2 * kSecond, 101), compact_release(1, kHeap)})}));
  ExactRun::Process& child = run.add(101);
  child.chunks.add(
      2, 101,
      joined({exact_attach(2 * kSecond, 101, 100, trace::Born::fork),
              clock_then(2 * kSecond, {compact_release(1, kHeap + 64), compact_allocate(1, kHeap + 128, 8, 1)})}));
  ExactRun::Process& other = run.add(102);  // an exec: nothing is inherited
  other.chunks.add(3, 102, exact_attach(2 * kSecond, 102, 100, trace::Born::exec));
  for (auto* process : {&parent, &child, &other}) ExactRun::add_walk(*process, 3 * kSecond);
  const auto seen = run.run();
  EXPECT_EQ(seen.at(100).at(0), (ExactRun::Live{{kHeap + 64, 40}}));
  EXPECT_EQ(seen.at(101).at(0), (ExactRun::Live{{kHeap, 24}, {kHeap + 128, 8}}));
  EXPECT_EQ(seen.at(102).at(0), ExactRun::Live{});
}

TEST(ExactIngest, AnExecBeginsAnew) {
  ExactRun run;
  ExactRun::Process& process = run.add(100);
  process.chunks.add(1, 100,
                     joined({exact_attach(kSecond, 100, 1, trace::Born::exec),
                             clock_then(kSecond, {compact_allocate(1, kHeap, 24, 1)})}));
  // A thread whose last record seems to be later than the new program's first.
  process.chunks.add(2, 200, clock_then(4 * kSecond, {compact_allocate(1, kHeap + 64, 24, 1)}));
  process.chunks.add(3, 100,
                     joined({exact_attach(3 * kSecond, 100, 1, trace::Born::exec),
                             clock_then(3 * kSecond, {compact_allocate(1, kHeap + 128, 24, 1)})}));
  ExactRun::add_walk(process, 2 * kSecond);
  ExactRun::add_walk(process, 5 * kSecond);
  const auto seen = run.run();
  EXPECT_EQ(seen.at(100).at(0), (ExactRun::Live{{kHeap, 24}}));
  EXPECT_EQ(seen.at(100).at(1), (ExactRun::Live{{kHeap + 128, 24}}));
}

TEST(ExactIngest, LargeBlocksAndFailedReallocs) {
  ExactRun run;
  ExactRun::Process& process = run.add(100);
  process.chunks.add(
      1, 1,
      joined(
          {exact_attach(kSecond, 100, 1, trace::Born::exec),
           clock_then(kSecond, {compact_allocate(1, kHeap, 24, 1), compact_allocate(1, kHeap + 64, 24, 1),
                                // realloc that fails: the block is as it was
                                compact_release(1, kHeap), block(RecordKind::release_undone, kSecond + 10, kHeap, 0, 0),
                                // a large block over what was released unseen
                                block(RecordKind::allocate, kSecond + 20, kHeap + 64, 65536, 1),
                                compact_release(1, kHeap + 64)})}));
  ExactRun::add_walk(process, 2 * kSecond);
  EXPECT_EQ(run.run().at(100).at(0), (ExactRun::Live{{kHeap, 24}}));
}

TEST(ExactIngest, LossesAreReported) {
  TestRecording recording;
  DrainedChunks chunks;
  const ByteVector clocked = clock_then(kSecond, {compact_allocate(1, kHeap, 24, 1), compact_release(1, kHeap)});
  chunks.add(1, 1, joined({exact_attach(kSecond, 100, 1, trace::Born::exec), clocked}));
  chunks.add(2, 1, joined({clocked, clocked}), 24);  // the frame with its start is gone
  recording.add(100, chunks.segments, {{FrameKind::walk, heap_walk(2 * kSecond)}}, {chunks.columns.take_payload()});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  EXPECT_EQ(account->info.lost_events, 2U);
  EXPECT_EQ(account->processes.at(0).notes,
            (std::vector<std::string>{"24 bytes of events are missing",
                                      "2 small blocks' events have no clock and are lost"}));
}

TEST(ExactIngest, WhatAKilledCollectorLeftInThePoolGoesOnWhereTheFileEnds) {
  const TestRecording directory;
  const std::uint64_t size = trace::pool_bytes(4, 4);
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, size), &std::free);
  std::memset(memory.get(), 0, size);
  const trace::PoolView pool = trace::format_pool(memory.get(), 4, 4, kSession);
  const trace::Writer writer{.pool = pool, .pid = 100, .tid = 1, .slot = trace::kNoSlot, .start_ticks = 7};
  trace::Lease lease;
  const auto write = [&](const ByteVector& bytes) {
    std::memcpy(trace::reserve(writer, lease, bytes.size()), bytes.data(), bytes.size());
    trace::publish(lease, bytes.size());
  };
  const std::vector<ByteVector> front{exact_attach(kSecond, 100, 1, trace::Born::exec),
                                      clock_at(kSecond, kSecond * kRate), compact_allocate(1, kHeap, 24, 1),
                                      compact_allocate(1, kHeap + 64, 24, 1)};
  for (const ByteVector& bytes : front) write(bytes);
  lease.chunk->drained.store(lease.used);
  write(stack(kSecond, 9, {1}));
  write(compact_release(kRate * kSecond, kHeap));
  const std::string pool_path = directory.path() + "/pool";
  std::ofstream(pool_path, std::ios::binary)
      .write(static_cast<const char*>(memory.get()), static_cast<std::streamsize>(size));

  for (const bool with_pool : {false, true}) {
    ExactRun run;
    ExactRun::Process& process = run.add(100);
    process.chunks.add(lease.chunk->lease.load(), 1, joined(front));
    const auto file = Folder::open(directory.path())->open_file("pool");
    ASSERT_TRUE(file.ok());
    const auto copy = PoolCopy::read(*file, hex32(kSession.high, kSession.low));
    ASSERT_TRUE(copy.ok());
    std::vector<std::unique_ptr<ProcessInput>> inputs;
    auto& input = inputs.emplace_back(std::make_unique<ProcessInput>(std::move(process.input)));
    input->start_ticks = 7;
    if (with_pool) {
      EXPECT_EQ(copy->add_to(inputs), stack(kSecond, 9, {1}).size() + 16);
    }
    ASSERT_EQ(inputs.size(), 1U);
    process.input = std::move(*input);
    ExactRun::add_walk(process, 3 * kSecond / 2);
    ExactRun::add_walk(process, 3 * kSecond);
    const auto seen = run.run();
    const ExactRun::Live all{{kHeap, 24}, {kHeap + 64, 24}};
    EXPECT_EQ(seen.at(100).at(0), all);
    EXPECT_EQ(seen.at(100).at(1), with_pool ? (ExactRun::Live{{kHeap + 64, 24}}) : all);
    EXPECT_EQ(process.account.notes, std::vector<std::string>{});
    EXPECT_EQ(process.input.stream.untimed_records(), 0U);
  }
}

}  // namespace
}  // namespace whyrss::exact_ingest_test
