#include "replay/pictured_walks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace whyrss {
namespace {

using Numbers = std::vector<std::size_t>;

Numbers numbers_of(const std::vector<WalkMoment>& walks, std::size_t most) {
  const auto pictured = pictured_walks({walks}, {.of_each = most, .pictures = 1000, .entries = 9000});
  Numbers numbers;
  for (const PicturedWalk& walk : pictured.at(0)) numbers.push_back(walk.number);
  return numbers;
}

TEST(PicturedWalks, TheLargestOfEachPartOfTheTimeAndTheEnds) {
  std::vector<WalkMoment> walks;
  for (std::uint64_t i = 0; i <= 100; ++i) walks.push_back({i * 1000, i * 1000 + 10, i == 33 ? 1000 : i % 7});
  EXPECT_EQ(numbers_of(walks, 2), (Numbers{33, 100}));
  const Numbers chosen = numbers_of(walks, 12);
  EXPECT_LE(chosen.size(), 12U);
  EXPECT_GE(chosen.size(), 10U);
  for (const std::size_t needed : {33, 100}) EXPECT_TRUE(std::ranges::binary_search(chosen, needed));
  for (std::size_t i = 1; i < chosen.size(); ++i) EXPECT_LE(chosen[i] - chosen[i - 1], 20U);
}

TEST(PicturedWalks, NoMoreThanThereAre) {
  EXPECT_EQ(numbers_of({}, 5), Numbers{});
  EXPECT_EQ(numbers_of({{0, 1, 7}}, 5), Numbers{0});
  EXPECT_EQ(numbers_of({{0, 1, 7}, {2, 3, 9}}, 0), Numbers{});
  EXPECT_EQ(numbers_of({{0, 1, 7}, {2, 3, 9}}, 1), Numbers{1});
  EXPECT_EQ(numbers_of({{0, 5, 7}, {2, 5, 9}}, 9), Numbers{1});  // at one moment
}

TEST(PicturedWalks, LargeProcessesHaveMost) {
  std::vector<WalkMoment> large, small;
  for (std::uint64_t i = 0; i < 100; ++i) {
    large.push_back({i * 1000, i * 1000 + 10, 90'000});
    small.push_back({i * 1000, i * 1000 + 10, 100});
  }
  std::vector<std::vector<WalkMoment>> all(100, small);
  all[7] = large;
  const auto pictured = pictured_walks(all, {.of_each = 20, .pictures = 50, .entries = 180'000});
  EXPECT_GE(pictured[7].size(), 18U);  // the first one is the largest of two parts
  std::size_t entries = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != 7) {
      ASSERT_EQ(pictured[i].size(), 1U);
      EXPECT_EQ(pictured[i][0].most_entries, 500U);  // some, whatever the budget
    }
    for (const PicturedWalk& walk : pictured[i]) entries += i == 7 ? walk.most_entries : 0;
  }
  EXPECT_NEAR(static_cast<double>(entries), 180'000, 1'800);
}

}  // namespace
}  // namespace whyrss
