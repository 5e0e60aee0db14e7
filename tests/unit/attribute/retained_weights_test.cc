// Lines of free pages from those that tell: memory that was used again tells more often, and counts no more for it.
#include "attribute/retained_weights.h"

#include <gtest/gtest.h>

#include <cmath>

namespace whyrss::retained_weights_test {
namespace {

constexpr BlockKind kBuilt{StackId{1}, 20}, kSerialised{StackId{2}, 20}, kPassing{StackId{2}, 40};
constexpr std::int64_t kPages = 10'000, kPageBytes = 4096, kBlocksPerPage = 6;
constexpr double kRate = 0.0625;  // samples of one filling of a page, with one in 64 KiB

// `pages` pages of `stack`, filled `turnover` times each: what tells of them, and the blocks that did it.
void fill(RetainedWeights& reported, BlockTurnover& turnover, BlockKind kind, std::int64_t pages, int times) {
  const auto blocks = static_cast<double>(pages * kBlocksPerPage);
  for (int i = 0; i < times; ++i) {
    turnover.allocated(kind, blocks, blocks);
    turnover.released(kind, blocks);
  }
  const auto telling = std::llround(static_cast<double>(pages) * (1 - std::exp(-kRate * times)));
  for (std::int64_t i = 0; i < telling; ++i) reported.add(kind, kPageBytes);
  for (std::int64_t i = telling; i < pages; ++i) reported.add_silent();
}

double pages_of(const RetainedWeights& reported, const BlockTurnover& turnover, BlockKind kind, std::int64_t all) {
  HeapShares shares;
  reported.add_to(shares, turnover);
  for (const HeapShares::Share& share : shares.share_out(all * kPageBytes, Samples::scaled))
    if (share.stack == kind.stack) return static_cast<double>(share.bytes) / kPageBytes;
  return 0;
}

TEST(RetainedWeights, LinesThatUseTheirMemoryAgainCountNoMore) {
  RetainedWeights reported;
  BlockTurnover turnover;
  fill(reported, turnover, kBuilt, kPages, 1);
  fill(reported, turnover, kSerialised, kPages, 8);
  EXPECT_NEAR(pages_of(reported, turnover, kBuilt, 2 * kPages), kPages, kPages / 50.0);
  EXPECT_NEAR(pages_of(reported, turnover, kSerialised, 2 * kPages), kPages, kPages / 50.0);
}

// Made so fast that samples of it were 8 times as rare: a page of it tells as if it had been filled once.
TEST(RetainedWeights, RarerSamplesCountAsMuch) {
  RetainedWeights reported;
  BlockTurnover turnover;
  fill(reported, turnover, kBuilt, kPages, 1);
  for (int i = 0; i < 8; ++i) {
    turnover.allocated(kSerialised, kPages * kBlocksPerPage, kPages * kBlocksPerPage / 8.0);
    turnover.released(kSerialised, kPages * kBlocksPerPage);
  }
  const auto telling = std::llround(static_cast<double>(kPages) * (1 - std::exp(-kRate)));
  for (std::int64_t i = 0; i < telling; ++i) reported.add(kSerialised, kPageBytes);
  for (std::int64_t i = telling; i < kPages; ++i) reported.add_silent();
  EXPECT_NEAR(pages_of(reported, turnover, kBuilt, 2 * kPages), kPages, kPages / 50.0);
  EXPECT_NEAR(pages_of(reported, turnover, kSerialised, 2 * kPages), kPages, kPages / 50.0);
}

// The line that serialises makes both: buffers of 4 KiB, one at a time, here and there, and results that stay.
TEST(RetainedWeights, BlocksThatPassLeaveThePagesToThoseThatStay) {
  RetainedWeights reported;
  BlockTurnover turnover;
  fill(reported, turnover, kBuilt, kPages, 1);
  fill(reported, turnover, kSerialised, kPages, 1);
  for (int i = 0; i < 3000; ++i) {
    turnover.allocated(kPassing, 16, 16);
    turnover.released(kPassing, 16);
    reported.add(kPassing, kPageBytes);
  }
  constexpr std::int64_t kAll = 2 * kPages + 3000;
  EXPECT_NEAR(pages_of(reported, turnover, kBuilt, kAll), kAll / 2.0, kPages / 50.0);
}

// Bodies of six pages, of which the first alone tells, and a head of a third of a page for each.
TEST(RetainedWeights, BlocksOfSeveralPagesCountForAllOfThem) {
  constexpr std::int64_t kBlocks = 4000, kPagesPerBody = 6, kHeadPages = kBlocks / 3;
  constexpr BlockKind kBody{StackId{1}, size_class_of(kPagesPerBody * 4096)}, kHead{StackId{2}, size_class_of(1365)};
  RetainedWeights reported;
  BlockTurnover turnover;
  for (const BlockKind kind : {kBody, kHead}) {
    turnover.allocated(kind, kBlocks, kBlocks);
    turnover.released(kind, kBlocks);
  }
  const auto add = [&](BlockKind kind, std::int64_t pages) {
    const auto telling = std::llround(static_cast<double>(pages) * kRate);
    for (std::int64_t i = 0; i < telling; ++i) reported.add(kind, kPageBytes);
    for (std::int64_t i = telling; i < pages; ++i) reported.add_silent();
  };
  add(kBody, kBlocks * kPagesPerBody);
  add(kHead, kHeadPages);
  constexpr std::int64_t kAll = kBlocks * kPagesPerBody + kHeadPages;
  EXPECT_NEAR(pages_of(reported, turnover, kBody, kAll), kBlocks * kPagesPerBody, kAll / 50.0);
}

TEST(RetainedWeights, PagesThatAllTellSpeakForThemselves) {
  RetainedWeights reported;
  BlockTurnover turnover;
  turnover.allocated(kBuilt, 1e9, 1e9);
  turnover.allocated(kSerialised, 1e9, 1e9);
  for (int i = 0; i < 30; ++i) reported.add(i < 10 ? kBuilt : kSerialised, kPageBytes);
  EXPECT_NEAR(pages_of(reported, turnover, kBuilt, 30), 10, 0.01);
}

TEST(RetainedWeights, NobodyTells) {
  RetainedWeights reported;
  reported.add_silent();
  EXPECT_EQ(pages_of(reported, BlockTurnover(), kBuilt, 1), 0);
}

TEST(BlockKind, AClassBeginsAtItsLeastSize) {
  for (const std::uint32_t bytes : {8U, 9U, 15U, 16U, 100U, 4096U, 4097U, 30'000U, 131'071U}) {
    const std::uint32_t least = least_bytes_of(size_class_of(bytes));
    EXPECT_LE(least, bytes);
    EXPECT_GT(least * 9 / 8 + 1, bytes);
    EXPECT_EQ(size_class_of(least), size_class_of(bytes));
  }
}

TEST(BlockKind, SizesOfOneClassAreAlike) {
  EXPECT_EQ(size_class_of(800), size_class_of(830));
  EXPECT_NE(size_class_of(608), size_class_of(704));
  std::uint16_t last = 0;
  for (std::uint32_t bytes = 1; bytes < 1U << 19; ++bytes) {
    const std::uint16_t now = size_class_of(bytes);
    EXPECT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace whyrss::retained_weights_test
