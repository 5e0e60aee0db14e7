// Small blocks while events are replayed: weights of samples, undone releases, forgotten ranges, fork.
#include "replay/small_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace whyrss::small_blocks_test {
namespace {

trace::BlockRecord sample(std::uint64_t address, std::uint64_t size_bytes, std::uint64_t sampled_bytes) {
  trace::BlockRecord block{};
  block.address = address;
  block.size_bytes = size_bytes;
  block.sampled_bytes = sampled_bytes;
  return block;
}

std::vector<LiveBlock> all(const SmallBlocks& blocks) {
  std::vector<LiveBlock> found;
  blocks.live().for_each([&](const LiveBlock& block) { found.push_back(block); });
  return found;
}

TEST(SmallBlocks, ASampleStandsForThoseThatWereNotChosen) {
  const auto weight = [](std::uint64_t sampled_bytes, std::uint64_t sample_bytes) {
    SmallBlocks blocks;
    blocks.begin(sample_bytes);
    EXPECT_TRUE(blocks.allocate(sample(64, 24, sampled_bytes), StackId{3}));
    return all(blocks).at(0).weight;
  };
  EXPECT_NEAR(weight(100, 65536), 1 / (1 - std::exp(-100.0 / 65536)), 0.01);
  EXPECT_NEAR(weight(65536, 65536), 1.582, 0.001);
  constexpr std::uint64_t kTwiceAsRare = std::uint64_t{1} << trace::BlockRecord::kCoarsenessShift;
  EXPECT_NEAR(weight(65536 | kTwiceAsRare, 32768), 1.582, 0.001);
  EXPECT_EQ(weight(1 << 30, 65536), 1);
  EXPECT_EQ(weight(24, 0), 1);                                          // none is sampled, says the image
  EXPECT_EQ(weight(24, std::numeric_limits<std::uint64_t>::max()), 1);  // nonsense
  EXPECT_TRUE(std::isfinite(weight(1, 1 << 30)));
}

TEST(SmallBlocks, AnUndoneReleaseGivesTheBlockBack) {
  SmallBlocks blocks;
  blocks.begin(65536);
  ASSERT_TRUE(blocks.allocate(sample(64, 24, 24), StackId{3}));
  const auto before = all(blocks);
  EXPECT_TRUE(blocks.release(64, 1));
  EXPECT_FALSE(blocks.undo_release(64, 2));
  EXPECT_FALSE(blocks.undo_release(128, 1));
  EXPECT_TRUE(all(blocks).empty());
  EXPECT_TRUE(blocks.undo_release(64, 1));
  EXPECT_EQ(all(blocks), before);
  EXPECT_FALSE(blocks.undo_release(64, 1));
}

TEST(SmallBlocks, AnOlderReleaseIsNotUndone) {
  SmallBlocks blocks;
  blocks.begin(65536);
  ASSERT_TRUE(blocks.allocate(sample(64, 24, 24), StackId{3}));
  EXPECT_TRUE(blocks.release(64, 1));
  EXPECT_FALSE(blocks.release(64, 1));  // a large block meanwhile
  EXPECT_FALSE(blocks.undo_release(64, 1));
}

TEST(SmallBlocks, ForgetsRangesAndImages) {
  SmallBlocks blocks;
  blocks.begin(0);
  for (std::uint64_t address = 4096; address < 5 * 4096; address += 1024)
    ASSERT_TRUE(blocks.allocate(sample(address, 24, 24), StackId{3}));
  blocks.forget(2 * 4096, 4096);
  EXPECT_EQ(blocks.live().size(), 12U);
  blocks.forget(4 * 4096, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(blocks.live().size(), 8U);
  SmallBlocks child;
  child.begin_as(blocks.live(), 0);
  EXPECT_TRUE(child.release(4096, 9));
  EXPECT_EQ(child.live().size(), 7U);
  EXPECT_EQ(blocks.live().size(), 8U);
  blocks.begin(0);
  EXPECT_EQ(blocks.live().size(), 0U);
  EXPECT_FALSE(blocks.allocate(sample(4096, std::numeric_limits<std::uint64_t>::max(), 24), StackId{3}));
}

}  // namespace
}  // namespace whyrss::small_blocks_test
