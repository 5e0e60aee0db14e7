// Stacks are left in the recording until they are asked for: what is in memory does not grow with their number, and
// each is found under its id, whichever frame, image or pool holds it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "compact_builder.h"
#include "decode/stack_places.h"
#include "load/load.h"
#include "native_places.h"

namespace whyrss::stored_stacks_test {
namespace {

using namespace testing_support;
using trace::FrameKind;
using trace::RecordKind;

constexpr std::uint64_t kSecond = 1'000'000'000, kMiB = 1 << 20;
constexpr std::uint64_t kMapped = 0x7f0000000000, kMapBytes = 64 * 1024;
constexpr std::uint32_t kOwn = trace::PageBits::present | trace::PageBits::exclusive;

ByteVector walk_of_maps(std::uint64_t time_ns, std::uint32_t maps) {
  return walk(
      time_ns,
      {{.start = kMapped, .path = {}, .runs = {{kOwn, static_cast<std::uint32_t>(maps * (kMapBytes / 4096))}}}});
}

ByteVector map_number(std::uint64_t number, std::uint64_t time_ns, std::uint32_t stack_id) {
  return map(time_ns, kMapped + number * kMapBytes, kMapBytes, stack_id);
}

// Addresses in the program of the innermost frames behind the last account's anonymous memory.
std::multiset<std::uint64_t> addresses(const RecordingAccount& recording) {
  std::multiset<std::uint64_t> found;
  for (const Slice& slice : recording.processes.at(0).accounts.back().slices) {
    const std::vector<FrameId>& frames = recording.stacks[slice.site.stack];
    if (slice.site.cause == Cause::anonymous) found.insert(frames.empty() ? 0 : recording.stacks[frames[0]].address);
  }
  return found;
}

// Frames full of stack records, of different stacks with ids from 1 on.
class ManyStacks {
 public:
  static constexpr std::uint32_t kNatives = 60;
  static constexpr std::uint64_t kCode = 0x500000;

  ManyStacks() {
    const ByteVector one = stack(kSecond, 0, std::vector<std::uint64_t>(kNatives, kCode + 1));
    record_bytes_ = one.size();
    per_segment_ = trace::kChunkBytes / record_bytes_;
    for (std::size_t i = 0; i < kSegments; ++i) {
      const ByteVector whole = segment(0, 0, joined(std::vector<ByteVector>(per_segment_, one)));
      append(payload_, whole.data(), whole.size());
    }
  }
  void write_frame(FrameWriter& events) {
    const std::size_t segment_bytes = sizeof(trace::SegmentHeader) + per_segment_ * record_bytes_;
    for (std::size_t i = 0; i < kSegments; ++i) {
      std::byte* const at = payload_.data() + i * segment_bytes;
      std::memcpy(at + offsetof(trace::SegmentHeader, lease), &++lease_, sizeof lease_);
      for (std::size_t k = 0; k < per_segment_; ++k) number(at + sizeof(trace::SegmentHeader) + k * record_bytes_);
    }
    ASSERT_TRUE(events.append(FrameKind::segment, 1, payload_).ok());
  }
  [[nodiscard]] std::size_t frame_bytes() const { return payload_.size(); }
  [[nodiscard]] std::uint32_t last_id() const { return id_; }

 private:
  static constexpr std::size_t kSegments = 32;

  void number(std::byte* record) {
    ++id_;
    std::memcpy(record + offsetof(trace::StackRecord, stack_id), &id_, sizeof id_);
    const std::uint64_t return_address = kCode + id_ * 16ULL + 1;
    std::memcpy(record + sizeof(trace::StackRecord), &return_address, sizeof return_address);
  }

  std::size_t record_bytes_ = 0, per_segment_ = 0;
  ByteVector payload_;
  std::uint64_t lease_ = 1;
  std::uint32_t id_ = 0;
};

// What the child process answers, and how much memory it had at most.
struct InChild {
  int status = -1;
  std::int64_t peak_bytes = 0;
};
template <typename Work>
InChild in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  InChild result;
  rusage usage{};
  EXPECT_EQ(wait4(child, &result.status, 0, &usage), child);
  result.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  return result;
}

TEST(StoredStacks, MoreThanTheMemoryOfAReportHolds) {
  constexpr std::size_t kAllBytes = 1024 * kMiB, kMostBytes = 512 * kMiB;
  TestRecording recording;
  std::vector<std::uint32_t> used;
  recording.add_written(100,
                        [&](FrameWriter& events) {
                          ManyStacks stacks;
                          ByteVector start =
                              joined({attach(kSecond, 100, 1, trace::Born::exec),
                                      module_at(kSecond, ManyStacks::kCode, 0x50000000, "/usr/bin/job")});
                          static_cast<void>(events.append(FrameKind::segment, 1, segment(1, 0, start)));
                          for (std::size_t bytes = 0; bytes < kAllBytes; bytes += stacks.frame_bytes())
                            stacks.write_frame(events);
                          used = {1, stacks.last_id() / 2, stacks.last_id()};
                          ByteVector maps;
                          for (std::size_t i = 0; i < used.size(); ++i) {
                            const ByteVector one = map_number(i, 2 * kSecond, used[i]);
                            append(maps, one.data(), one.size());
                          }
                          static_cast<void>(events.append(FrameKind::segment, 1,
                                                          segment(1, static_cast<std::uint32_t>(start.size()), maps)));
                        },
                        {{FrameKind::walk, walk_of_maps(3 * kSecond, 3)}});
  recording.write_manifest();
  const InChild read = in_child([&] {
    const auto account = load_account(recording.path());
    std::multiset<std::uint64_t> expected;
    for (const std::uint32_t id : used) expected.insert(id * 16ULL);
    return account.ok() && account->info.lost_events == 0 && addresses(*account) == expected ? 0 : 1;
  });
  EXPECT_EQ(read.status, 0);
  EXPECT_LT(read.peak_bytes, static_cast<std::int64_t>(kMostBytes));
}

TEST(StoredStacks, OneIdInTwoImagesThatOneFrameHolds) {
  TestRecording recording;
  recording.add(
      100,
      {segment(1, 0,
               joined({attach(kSecond, 100, 1, trace::Born::exec), module_at(kSecond, 0x5000, 0x6000, "/a"),
                       stack(kSecond, 1, {0x5101}), map_number(0, kSecond, 1),
                       attach(2 * kSecond, 100, 1, trace::Born::exec), module_at(2 * kSecond, 0x5000, 0x6000, "/b"),
                       stack(2 * kSecond, 1, {0x5201}), stack(2 * kSecond, 2, {0x5301}), map_number(0, 2 * kSecond, 1),
                       map_number(1, 2 * kSecond, 2)}))},
      {{FrameKind::walk, walk_of_maps(3 * kSecond, 2)}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  EXPECT_EQ(addresses(*account), (std::multiset<std::uint64_t>{0x200, 0x300}));
  const std::set<Place> places = native_places(recording.path());
  EXPECT_EQ(places, native_places(account->stacks));
  EXPECT_TRUE(places.contains({"/a", 0x100}) && places.contains({"/b", 0x200}) && places.contains({"/b", 0x300}));
}

TEST(StoredStacks, TheSameStackUnderManyIds) {
  TestRecording recording;
  std::vector<ByteVector> records{attach(kSecond, 100, 1, trace::Born::exec), module_at(kSecond, 0x5000, 0x6000, "/a")};
  for (std::uint32_t id = 1; id <= 40; ++id) {
    records.push_back(stack(kSecond + id, id, {0x5101 + id % 2 * 0x100, 0x5801}));
    records.push_back(map_number(id - 1, kSecond + id, id));
  }
  recording.add(100, {segment(1, 0, joined(records))}, {{FrameKind::walk, walk_of_maps(3 * kSecond, 40)}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  EXPECT_EQ(addresses(*account), (std::multiset<std::uint64_t>{0x100, 0x200}));
  EXPECT_EQ(account->stacks.stack_count(), 3U);  // and the empty one
}

TEST(StackPlaces, RunsThatOverlapAreAllTried) {
  std::vector<StackRun> runs;
  for (const std::uint32_t id : {1U, 3U, 5U}) add_stack(runs, id, 0, 10 + id);
  for (const std::uint32_t id : {2U, 4U, 6U, 1'000'000U, 7U}) add_stack(runs, id, 1, 10 + id);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[1].first_id, 2U);
  EXPECT_EQ(runs[1].last_id, 6U);
  EXPECT_EQ(runs[1].first_ns, 12U);
  EXPECT_EQ(runs[1].last_ns, 16U);
  StackPlaces places;
  for (const StackRun& run : runs) places.add(run);
  places.sort();
  const auto frames_for = [&](std::uint32_t id) {
    std::set<std::uint32_t> frames;
    EXPECT_FALSE(places.visit_frames(id, [&](std::uint32_t frame) {
      frames.insert(frame);
      return false;
    }));
    return frames;
  };
  EXPECT_EQ(frames_for(4), (std::set<std::uint32_t>{0, 1}));
  EXPECT_EQ(frames_for(1'000'000), (std::set<std::uint32_t>{1}));
  EXPECT_EQ(frames_for(500), (std::set<std::uint32_t>{}));
  EXPECT_TRUE(places.visit_frames(7, [](std::uint32_t frame) { return frame == 1; }));
}

}  // namespace
}  // namespace whyrss::stored_stacks_test
