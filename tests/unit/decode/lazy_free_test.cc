// Frames of what the kernel said of pages given up with MADV_FREE, from a process to an account.
#include "decode/lazy_free.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "load/load.h"
#include "recording_builder.h"

namespace whyrss::lazy_free_test {
namespace {

using namespace testing_support;
using trace::FrameKind;
using trace::LazyFreeMapping;
using trace::PageBits;
using trace::RecordKind;

constexpr std::uint64_t kSecond = 1'000'000'000, kPage = 4096, kMapped = 0x7f0000001000;

ByteVector frame(std::uint64_t walk_end_ns, std::uint64_t read_ns, const std::vector<LazyFreeMapping>& mappings) {
  const trace::LazyFreeHeader header{.walk_end_ns = walk_end_ns, .read_ns = read_ns};
  ByteVector payload;
  append(payload, &header, sizeof header);
  append(payload, mappings.data(), mappings.size() * sizeof(LazyFreeMapping));
  return payload;
}

TEST(LazyFreeFrame, HoldsSumsOfWholePages) {
  const auto read = read_lazy_free(frame(7, 9, {{kPage, 9 * kPage, 2 * kPage}, {9 * kPage, 10 * kPage, kPage}}));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->walk_end_ns, 7U);
  EXPECT_EQ(read->read_ns, 9U);
  EXPECT_EQ(read->sums, (std::vector<LazyFreeSum>{{kPage, 9 * kPage, static_cast<std::int64_t>(2 * kPage)},
                                                  {9 * kPage, 10 * kPage, static_cast<std::int64_t>(kPage)}}));
}

TEST(LazyFreeFrame, DamagedOnesAreNone) {
  EXPECT_FALSE(read_lazy_free({}));
  EXPECT_FALSE(read_lazy_free(frame(7, 9, {{kPage, 9 * kPage, 9 * kPage}})));  // more than there is room for
  EXPECT_FALSE(read_lazy_free(frame(7, 9, {{kPage, 9 * kPage, 100}})));
  EXPECT_FALSE(read_lazy_free(frame(7, 9, {{kPage + 1, 9 * kPage, kPage}})));
  EXPECT_FALSE(read_lazy_free(frame(7, 9, {{9 * kPage, 9 * kPage, 0}})));
  EXPECT_FALSE(read_lazy_free(frame(7, 9, {{kPage, 9 * kPage, kPage}, {8 * kPage, 10 * kPage, kPage}})));
  EXPECT_FALSE(read_lazy_free(frame(7, 9, {{kPage, ~std::uint64_t{0} - kPage + 1, kPage}})));
  ByteVector cut = frame(7, 9, {{kPage, 9 * kPage, kPage}});
  cut.pop_back();
  EXPECT_FALSE(read_lazy_free(cut));
}

std::int64_t lazy_bytes(const Account& account) {
  std::int64_t sum = 0, total = 0;
  for (const Slice& slice : account.slices) {
    total += slice.bytes;
    if (slice.site.cause == Cause::lazy_free) sum += slice.bytes;
  }
  EXPECT_EQ(total, account.rss_bytes);
  return sum;
}

// A mapping of 10 pages, 6 of which are given up before the first walk and 2 others after it; 4 are lazy at the first
// and, of all 8, 7 at the second. The kernel is not asked at the third, and the fourth is after MADV_DONTNEED.
TEST(LazyFree, IsReportedWhereTheKernelWasAsked) {
  TestRecording recording;
  recording.manifest.command = {"job"};
  const auto advise = [](std::uint64_t time_ns, std::uint64_t first, std::uint64_t count, int advice) {
    return range_record(RecordKind::advise, time_ns, kMapped + first * kPage, count * kPage, advice, 2);
  };
  const std::vector<TestVma> mapping{
      {.start = kMapped, .path = "", .runs = {{PageBits::present | PageBits::exclusive, 10}}}};
  const auto sums = [](std::uint64_t count) {
    return std::vector<LazyFreeMapping>{{kMapped, kMapped + 10 * kPage, count * kPage}};
  };
  recording.add(
      100,
      {segment(1, 0,
               joined({attach(kSecond, 100, 1, trace::Born::exec), module_at(kSecond, 0x5000, 0x6000, "/usr/bin/job"),
                       stack(kSecond, 1, {0x5101}), stack(kSecond, 2, {0x5201}),
                       map(2 * kSecond, kMapped, 10 * kPage, 1), advise(2 * kSecond, 0, 6, MADV_FREE),
                       advise(3 * kSecond + 100, 6, 2, MADV_FREE), advise(5 * kSecond, 0, 8, MADV_DONTNEED)}))},
      {{FrameKind::walk, walk(3 * kSecond, mapping)},
       {FrameKind::lazy_free, frame(3 * kSecond, 3 * kSecond + 200, sums(6))},
       {FrameKind::walk, walk(4 * kSecond, mapping)},
       {FrameKind::lazy_free, frame(4 * kSecond, 4 * kSecond + 200, sums(7))},
       {FrameKind::walk, walk(4 * kSecond + 1000, mapping)},
       {FrameKind::walk, walk(6 * kSecond, mapping)},
       {FrameKind::lazy_free, frame(6 * kSecond, 6 * kSecond + 200, sums(7))}});
  recording.write_manifest();
  const auto loaded = load_account(recording.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  const auto& accounts = loaded->processes.front().accounts;
  ASSERT_EQ(accounts.size(), 4U);
  const auto bytes = [](std::int64_t pages) { return pages * static_cast<std::int64_t>(kPage); };
  EXPECT_EQ(lazy_bytes(accounts[0]), bytes(4));  // two of the kernel's six were given up after the walk
  EXPECT_EQ(lazy_bytes(accounts[1]), bytes(7));
  EXPECT_EQ(lazy_bytes(accounts[2]), 0);
  EXPECT_EQ(lazy_bytes(accounts[3]), 0);
  const auto lazy =
      std::ranges::find_if(accounts[1].slices, [](const Slice& slice) { return slice.site.cause == Cause::lazy_free; });
  ASSERT_EQ(lazy->advised.size(), 1U);
  const StackTable& stacks = loaded->stacks;
  EXPECT_EQ(stacks[stacks[lazy->site.stack].front()].address, 0x100U);
  EXPECT_EQ(stacks[stacks[lazy->advised[0].stack].front()].address, 0x200U);
}

}  // namespace
}  // namespace whyrss::lazy_free_test
