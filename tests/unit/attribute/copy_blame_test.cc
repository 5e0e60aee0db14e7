// Which line made copied memory and which one wrote to it: exact sums, sampled shares.
#include "attribute/copy_blame.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "literal_accounts.h"
#include "report/view/build_view.h"

namespace whyrss::copy_blame_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;
std::uint64_t page(std::uint64_t number) { return kBase + number * kPage; }

constexpr auto kMade = StackId{3};
constexpr auto kOther = StackId{4};
constexpr auto kWrote = StackId{5};
constexpr auto kWroteToo = StackId{6};

TEST(CopyBlame, SlicesSumToWhatWasCopied) {
  TouchedPages touched(kPage);
  touched.add({.page = page(1), .time_ns = 10, .weight = 3, .stack = kWrote}, true, true);
  touched.add({.page = page(9), .time_ns = 11, .weight = 7, .stack = kWrote}, true, true);  // not copied
  std::vector<CowSlice> slices;
  blame_copies({{page(0), page(4)}, {page(5), page(6)}}, {{page(0), page(4), Owner::program, kMade}},
               {.touched = touched, .page_bytes = kPage, .time_s = 2}, slices);
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].written_at, kWrote);
  EXPECT_EQ(slices[0].allocated_at, kMade);
  EXPECT_EQ(slices[0].copied_bytes, 3 * 4096);
  EXPECT_EQ(slices[0].variance, 6.0 * 4096 * 4096);
  std::int64_t made = 0, nobodys = 0;
  for (const CowSlice& slice : slices) (slice.allocated_at == kMade ? made : nobodys) += slice.copied_bytes;
  EXPECT_EQ(made, 4 * 4096);
  EXPECT_EQ(nobodys, 4096);
}

// A page that holds an object's head is copied by reading it, one behind that by writing.
TEST(CopyBlame, PagesBehindTheHeadOfALargeBlockAreData) {
  TouchedPages touched(kPage);
  touched.add({.page = page(4), .time_ns = 10, .weight = 2, .stack = kWrote}, true, true);
  const std::vector<OwnedRange> owned{{page(0) + 16, page(3) + 16, Owner::block, kMade},  // read, its neighbour too
                                      {page(3) + 16, page(8) + 16, Owner::block, kOther},
                                      {page(8) + 16, page(9), Owner::block, kMade},  // a small one
                                      {page(10), page(12), Owner::pymalloc, kMade}};
  const auto sums = [&](const std::vector<Range>& copied) {
    std::vector<CowSlice> slices;
    blame_copies(copied, owned, {.touched = touched, .page_bytes = kPage, .time_s = 2}, slices);
    std::map<std::pair<StackId, bool>, std::int64_t> bytes;
    for (const CowSlice& slice : slices) bytes[{slice.allocated_at, slice.in_large_block}] += slice.copied_bytes;
    return bytes;
  };
  EXPECT_EQ(sums({{page(0), page(1)}, {page(3), page(4)}, {page(10), page(12)}}),
            (std::map<std::pair<StackId, bool>, std::int64_t>{
                {{kEmptyStack, false}, 16}, {{kMade, false}, 4080 + 16 + 2 * 4096}, {{kOther, false}, 4080}}));
  // Who wrote behind the head wrote to the rest of the first and of the last page as well.
  EXPECT_EQ(sums({{page(3), page(9)}}), (std::map<std::pair<StackId, bool>, std::int64_t>{{{kMade, false}, 16 + 4080},
                                                                                          {{kOther, true}, 5 * 4096}}));
}

// A heap of small blocks, a quarter of which was sampled: three parts of one line and one of another, written by a
// third.
TEST(CopyBlame, WhatNobodyOwnsGoesToTheSitesOfItsSmallBlocks) {
  TouchedPages touched(kPage);
  touched.add({.page = page(1), .time_ns = 10, .weight = 16, .stack = kWrote}, true, true);
  LiveSet blocks;
  for (std::uint64_t number = 0; number < 16; ++number)
    blocks.allocate(
        {.address = page(number) + 64, .size_bytes = 960, .weight = 4, .stack = number % 4 == 0 ? kOther : kMade});
  blocks.allocate({.address = page(40), .size_bytes = 960, .weight = 4, .stack = kOther});  // not copied
  std::vector<CowSlice> slices;
  blame_copies({{page(0), page(16)}}, {}, {.touched = touched, .page_bytes = kPage, .small_blocks = &blocks}, slices);
  std::map<std::pair<StackId, StackId>, std::int64_t> bytes;
  for (const CowSlice& slice : slices) bytes[{slice.allocated_at, slice.written_at}] += slice.copied_bytes;
  EXPECT_EQ((bytes[{kMade, kWrote}]), 12 * 4096);
  EXPECT_EQ((bytes[{kOther, kWrote}]), 4 * 4096);
  EXPECT_EQ((bytes[{kEmptyStack, kEmptyStack}]), 0);
}

// 31 pages of blocks of one line and one of another, half of which was written: half a page stays nobody's.
TEST(CopyBlame, WhatIsLeftOfAShareHasItsPartOfTheError) {
  TouchedPages touched(kPage);
  touched.add({.page = page(1), .time_ns = 10, .weight = 16, .stack = kWrote}, true, true);
  LiveSet blocks;
  for (std::uint64_t number = 0; number < 32; ++number)
    blocks.allocate(
        {.address = page(number) + 64, .size_bytes = 960, .weight = 4, .stack = number == 9 ? kOther : kMade});
  std::vector<CowSlice> slices;
  blame_copies({{page(0), page(32)}}, {}, {.touched = touched, .page_bytes = kPage, .small_blocks = &blocks}, slices);
  std::map<StackId, CowSlice> by_maker;
  for (const CowSlice& slice : slices)
    if (slice.written_at == kWrote) by_maker[slice.allocated_at] = slice;
  const double all = 16.0 * 15 * 4096 * 4096;
  EXPECT_EQ(by_maker[kMade].copied_bytes, 31 * 4096 / 2);
  EXPECT_NEAR(by_maker[kMade].variance, all * 31 / 32 * 31 / 32, 1);
  EXPECT_EQ(by_maker[kEmptyStack].copied_bytes, 4096 / 2);
  EXPECT_NEAR(by_maker[kEmptyStack].variance, all / 32 / 32, 1);
}

ProcessView shown(const std::vector<CowSlice>& copies) {
  static RecordingAccount recording;
  recording = {};
  recording.info = literal::finished({"prog"}, 2);
  ProcessAccount process = literal::python_process(10, {"prog"});
  process.ended_s = 2;
  process.copies = copies;
  recording.processes.push_back(process);
  return build_view(recording, whole_life(recording)).processes.front();
}

TEST(CopyBlame, EstimatesAreFittedToTheExactBytes) {
  // 1000 bytes of one line; the samples of two intervals say 1200.
  const ProcessView view = shown({{1, kMade, kWrote, 900, 100.0 * 100},
                                  {1, kMade, kEmptyStack, -400, 0},
                                  {2, kMade, kWroteToo, 300, 100.0 * 100},
                                  {2, kMade, kEmptyStack, 200, 0},
                                  {2, kOther, kEmptyStack, 50, 0}});
  EXPECT_EQ(view.copied, 1050);
  ASSERT_EQ(view.cow_sites.size(), 3U);
  EXPECT_EQ(view.cow_sites[0].written_at, kWrote);
  EXPECT_EQ(view.cow_sites[0].copied, 750);
  EXPECT_GT(view.cow_sites[0].variance, 0);
  EXPECT_EQ(view.cow_sites[1].copied, 250);
  EXPECT_EQ(view.cow_sites[2].allocated_at, kOther);
  EXPECT_EQ(view.cow_sites[2].written_at, kEmptyStack);
}

TEST(CopyBlame, WhatTheSamplesCannotStandForStaysNobodys) {
  const ProcessView view = shown({{1, kMade, kWrote, 300, 50.0 * 50}, {1, kMade, kEmptyStack, 700, 0}});
  ASSERT_EQ(view.cow_sites.size(), 2U);
  EXPECT_EQ(view.cow_sites[0].written_at, kEmptyStack);
  EXPECT_EQ(view.cow_sites[0].copied, 700);
  EXPECT_EQ(view.cow_sites[1].copied, 300);
}

}  // namespace
}  // namespace whyrss::copy_blame_test
