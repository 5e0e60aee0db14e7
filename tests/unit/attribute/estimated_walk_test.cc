// What a walk would have seen, known from polls and events since the last one.
#include "attribute/estimated_walk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "attribute/address_space.h"
#include "attribute/attribute.h"
#include "replay/estimate_moments.h"
#include "replay/high_water.h"

namespace whyrss::estimated_walk_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::int64_t kMiB = 1 << 20;
constexpr std::uint64_t kMiBPages = kMiB / kPage;
constexpr auto kFirst = StackId{3}, kSecond = StackId{4};
constexpr std::uint32_t kPeriod = 61;

std::uint64_t page(std::uint64_t number) { return kBase + number * kPage; }

// A process with one mapping of the program from page 0 to 100 MiB, of which 10 MiB were there at the walk, and
// whatever a test lets happen since.
class EstimatedWalkTest : public ::testing::Test {
 protected:
  EstimatedWalkTest() {
    space_.map(page(0), 100 * kMiB, {Owner::program, kFirst});
    walked_.traced = true;
    walked_.vmas = {{.start = page(0), .end = page(100 * kMiBPages), .path = {}, .writable = true}};
    walked_.runs = {{.start = page(0), .end = page(10 * kMiBPages), .exclusive = true}};
    space_.touched().observe(
        {.begin_ns = 100, .vmas = walked_.vmas, .runs = walked_.runs, .inherited = walked_.inherited});
  }

  void touch(std::uint64_t number) { space_.touch({.page = page(number), .time_ns = 200, .weight = kPeriod}); }
  void touch_all(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t number = from; number < to; number += kPeriod) touch(number);
  }

  EstimatedWalk estimate(std::int64_t rss_bytes, bool samples = true,
                         std::optional<std::int64_t> live_growth = std::nullopt,
                         std::optional<std::int64_t> most_live_growth = std::nullopt,
                         std::optional<double> most_small_growth = std::nullopt) {
    Evidence now;
    now.owned = space_.owned();
    now.held_blocks = space_.held_blocks();
    return estimate_walk(walked_, now, space_.touched().since_walk(), mapped_,
                         {.rss_bytes = rss_bytes,
                          .live_growth = live_growth,
                          .most_live_growth = most_live_growth,
                          .most_small_growth = most_small_growth,
                          .samples_faults = samples});
  }

  static std::int64_t exclusive_bytes(const EstimatedWalk& walk) {
    std::int64_t bytes = 0;
    for (const ResidentRun& run : walk.runs)
      bytes += run.exclusive ? static_cast<std::int64_t>(run.end - run.start) : 0;
    return bytes;
  }

  // By who mapped or allocated it.
  std::map<StackId, std::int64_t> bytes_of(const EstimatedWalk& walk) {
    Evidence evidence;
    evidence.traced = true;
    evidence.vmas = walk.vmas;
    evidence.runs = walk.runs;
    evidence.live_pages = walk.live_pages;
    evidence.owned = space_.owned();
    evidence.held_blocks = space_.held_blocks();
    std::map<StackId, std::int64_t> bytes;
    for (const Slice& slice : attribute(evidence).slices) bytes[slice.site.stack] += slice.bytes;
    return bytes;
  }

  AddressSpace space_;
  Evidence walked_;
  std::vector<NewMapping> mapped_;
};

TEST_F(EstimatedWalkTest, WithoutEventsTheWalkStandsAndGrowthIsOpen) {
  const EstimatedWalk walk = estimate(13 * kMiB);
  EXPECT_EQ(walk.runs, walked_.runs);
  EXPECT_EQ(walk.open_anonymous_bytes, 3 * kMiB);
  EXPECT_EQ(walk.lost_anonymous_bytes, 0);
  EXPECT_EQ(walk.bytes_per_sample, 0);
}

TEST_F(EstimatedWalkTest, GrowthIsSharedOutByFaults) {
  const std::uint64_t block = page(200 * kMiBPages);
  space_.allocate(block, 50 * kMiB, kSecond);
  touch_all(20 * kMiBPages, 30 * kMiBPages);
  touch_all(200 * kMiBPages, 230 * kMiBPages);
  const EstimatedWalk walk = estimate(50 * kMiB);
  EXPECT_EQ(walk.open_anonymous_bytes, 0);
  const auto bytes = bytes_of(walk);
  EXPECT_NEAR(static_cast<double>(bytes.at(kFirst)), 20. * kMiB, 0.5 * kMiB);
  EXPECT_NEAR(static_cast<double>(bytes.at(kSecond)), 30. * kMiB, 0.5 * kMiB);
  EXPECT_NEAR(walk.bytes_per_sample, kPeriod * kPage, kPage);
}

// Of a file that was read no fault was sampled: it is not of our pool, which has as much room.
TEST_F(EstimatedWalkTest, WhatNoFaultExplainsIsNotOurs) {
  const std::uint64_t file = page(300 * kMiBPages), pool = page(400 * kMiBPages);
  mapped_ = {
      {.start = file, .end = file + 30 * kMiB, .backing = Backing::file, .path = "/data/big"},
      {.start = pool, .end = pool + 30 * kMiB, .backing = Backing::shmem, .shared = true, .path = "/dev/shm/whyrss.0"}};
  space_.touch({.page = pool, .time_ns = 200, .weight = 1});
  Evidence now;
  now.owned = space_.owned();
  now.held_blocks = space_.held_blocks();
  const EstimatedWalk walk =
      estimate_walk(walked_, now, space_.touched().since_walk(), mapped_,
                    {.rss_bytes = 40 * kMiB, .shared_bytes = 30 * kMiB, .live_growth = {}, .samples_faults = true});
  std::int64_t ours = 0, files = 0;
  for (const ResidentRun& run : walk.runs)
    if (run.file) (run.start >= pool ? ours : files) += static_cast<std::int64_t>(run.end - run.start);
  EXPECT_LE(ours, kMiB);
  EXPECT_EQ(ours + files + walk.open_shared_bytes, 30 * kMiB);
  EXPECT_GE(files, 29 * kMiB);
}

// A copy takes the place of its original: what the process has alone grows, and its size does not.
TEST_F(EstimatedWalkTest, CopiesOfSharedPagesAreReportedBySampledWrites) {
  walked_.runs.front().exclusive = false;
  space_.touched().observe(
      {.begin_ns = 150, .vmas = walked_.vmas, .runs = walked_.runs, .inherited = walked_.inherited});
  touch_all(2 * kMiBPages, 6 * kMiBPages);
  touch_all(20 * kMiBPages, 21 * kMiBPages);  // new pages, which copy nothing
  const EstimatedWalk walk = estimate(11 * kMiB);
  EXPECT_NEAR(static_cast<double>(exclusive_bytes(walk)), 5. * kMiB, 0.3 * kMiB);
  std::uint64_t copied_bytes = 0;
  for (const Range& range : walk.copied) copied_bytes += range.end - range.start;
  EXPECT_NEAR(static_cast<double>(copied_bytes), 4. * kMiB, 0.3 * kMiB);
  EXPECT_EQ(walk.copied_bytes_per_sample, kPeriod * kPage);
  EXPECT_EQ(walk.open_anonymous_bytes, 0);
}

TEST_F(EstimatedWalkTest, NoMoreIsCopiedThanWasShared) {
  walked_.runs = {{.start = page(0), .end = page(100), .exclusive = true},
                  {.start = page(100), .end = page(110)},
                  {.start = page(110), .end = page(120), .exclusive = true}};
  space_.touched().observe(
      {.begin_ns = 150, .vmas = walked_.vmas, .runs = walked_.runs, .inherited = walked_.inherited});
  for (std::uint64_t number = 0; number < 110; number += 5) touch(number);
  const EstimatedWalk walk = estimate(120 * static_cast<std::int64_t>(kPage));
  EXPECT_EQ(walk.copied, (std::vector<Range>{{page(100), page(110)}}));
  EXPECT_EQ(exclusive_bytes(walk), 120 * static_cast<std::int64_t>(kPage));
}

// The samples of one stand for the others, too.
TEST_F(EstimatedWalkTest, BlocksOfOneLineAreOne) {
  for (std::uint64_t number = 0; number < 400; ++number)
    space_.allocate(page(200 * kMiBPages + number * 17), 16 * kPage, kSecond);
  touch_all(200 * kMiBPages, 200 * kMiBPages + 400 * 17);
  const EstimatedWalk walk = estimate(10 * kMiB + 400 * 16 * static_cast<std::int64_t>(kPage));
  EXPECT_LT(walk.open_anonymous_bytes, kMiB / 4);
  EXPECT_GT(bytes_of(walk).at(kSecond), 24 * kMiB);
}

TEST_F(EstimatedWalkTest, MoreThanTheFaultsCanHaveBroughtInStaysOpen) {
  space_.allocate(page(200 * kMiBPages), 50 * kMiB, kSecond);
  touch(200 * kMiBPages);
  mapped_.clear();
  walked_.vmas.front().end = page(11 * kMiBPages);
  const EstimatedWalk walk = estimate(13 * kMiB);
  EXPECT_EQ(bytes_of(walk).at(kFirst), 10 * kMiB);
  EXPECT_EQ(walk.open_anonymous_bytes + bytes_of(walk).at(kSecond), 3 * kMiB);
}

TEST_F(EstimatedWalkTest, WhatWasGivenBackIsGone) {
  space_.unmap(page(2 * kMiBPages), 4 * kMiB);
  EXPECT_EQ(bytes_of(estimate(6 * kMiB)), (std::map<StackId, std::int64_t>{{kFirst, 6 * kMiB}}));
  space_.drop_pages(page(0), kMiB);
  const EstimatedWalk walk = estimate(5 * kMiB);
  EXPECT_EQ(bytes_of(walk), (std::map<StackId, std::int64_t>{{kFirst, 5 * kMiB}}));
  EXPECT_EQ(walk.lost_anonymous_bytes, 0);
}

TEST_F(EstimatedWalkTest, AnUnseenFallIsReported) { EXPECT_EQ(estimate(7 * kMiB).lost_anonymous_bytes, 3 * kMiB); }

TEST_F(EstimatedWalkTest, TheEndOfTheHeapIsTrimmedUnseen) {
  walked_.vmas.front().path = "[heap]";
  space_ = AddressSpace{};
  space_.touched().observe(
      {.begin_ns = 100, .vmas = walked_.vmas, .runs = walked_.runs, .inherited = walked_.inherited});
  space_.allocate(page(kMiBPages), 2 * kMiB, kSecond);
  EstimatedWalk walk = estimate(7 * kMiB);
  EXPECT_EQ(walk.lost_anonymous_bytes, 0);
  ASSERT_EQ(walk.runs.size(), 1U);
  EXPECT_EQ(walk.runs.front().end, page(7 * kMiBPages));
  walk = estimate(2 * kMiB);
  EXPECT_EQ(walk.lost_anonymous_bytes, kMiB) << "a live block keeps what is below it";
}

TEST_F(EstimatedWalkTest, WithoutSampledFaultsNewBlocksAreLikely) {
  space_.allocate(page(200 * kMiBPages), 50 * kMiB, kSecond);
  const EstimatedWalk walk = estimate(40 * kMiB, false);
  EXPECT_EQ(bytes_of(walk).at(kSecond), 30 * kMiB);
  EXPECT_EQ(walk.open_anonymous_bytes, 0);
}

// A page of 2 MiB is one fault.
TEST_F(EstimatedWalkTest, WhatNoSampleTellsMayBeInHugePagesOfNewMemory) {
  space_.allocate(page(200 * kMiBPages), 30 * kMiB, kSecond);
  EstimatedWalk walk = estimate(40 * kMiB);
  EXPECT_EQ(bytes_of(walk).at(kSecond), 30 * kMiB);
  EXPECT_TRUE(walk.unsampled_variances.empty());
  constexpr auto kThird = StackId{7};
  space_.allocate(page(300 * kMiBPages), 30 * kMiB, kThird);
  walk = estimate(40 * kMiB);
  EXPECT_EQ(bytes_of(walk).at(kThird), 15 * kMiB);
  EXPECT_NEAR(std::sqrt(walk.unsampled_variances.at(kThird)), 15. * kMiB, kPage);
  walk = estimate(69 * kMiB);
  EXPECT_NEAR(std::sqrt(walk.unsampled_variances.at(kThird)), 1. * kMiB, kPage) << "both are nearly full";
}

TEST_F(EstimatedWalkTest, AMappingThatWasReplacedShowsNothingOfTheOldOne) {
  mapped_ = {{.start = page(0), .end = page(10 * kMiBPages), .backing = Backing::file, .shared = true}};
  space_.map(page(0), 10 * kMiB, {Owner::program, kSecond});
  walked_.has_liveness = true;
  walked_.live_pages = {{page(0), std::vector<PageLife>(10 * kMiBPages, {4000, false, true})}};
  const EstimatedWalk walk = estimate(0);
  EXPECT_TRUE(walk.runs.empty());
  EXPECT_TRUE(walk.live_pages.empty());
  ASSERT_EQ(walk.vmas.size(), 2U);
  EXPECT_EQ(walk.vmas.front().backing, Backing::file);
  EXPECT_EQ(walk.vmas.back().start, page(10 * kMiBPages));
}

TEST_F(EstimatedWalkTest, FreedSmallBlocksAreLiveNoMore) {
  walked_.vmas.front().path = "[heap]";
  walked_.has_liveness = true;
  walked_.live_pages = {{page(0), std::vector<PageLife>(10 * kMiBPages, {4000, false, true})}};
  space_ = AddressSpace{};
  const std::int64_t live = 10 * static_cast<std::int64_t>(kMiBPages) * 4000;
  const auto live_bytes = [&](std::int64_t growth, std::int64_t most_growth) {
    return estimate(10 * kMiB, true, growth, most_growth).live_pages.at(0).pages.at(0).live_bytes;
  };
  EXPECT_EQ(live_bytes(-live / 2, -live / 2), 2000);
  // The count after the moment has it back: a large block that was just being resized, or was counted a moment later.
  EXPECT_EQ(live_bytes(-live / 2, 0), 4000);
  EXPECT_EQ(live_bytes(-live / 2, live), 4000);
  EXPECT_EQ(live_bytes(-live / 2, -live / 4), 3000);
}

TEST_F(EstimatedWalkTest, NewPagesOfTheHeapHoldWhatTheCounterSays) {
  walked_.vmas.front().path = "[heap]";
  walked_.has_liveness = true;
  walked_.live_pages = {{page(0), std::vector<PageLife>(10 * kMiBPages, {4000, false, true})}};
  space_ = AddressSpace{};
  space_.touched().observe(
      {.begin_ns = 100, .vmas = walked_.vmas, .runs = walked_.runs, .inherited = walked_.inherited});
  touch_all(10 * kMiBPages, 20 * kMiBPages);
  const auto live_of = [](const EstimatedWalk& walk) {
    double live = 0;
    for (const LivePages& range : walk.live_pages)
      for (const PageLife& life : range.pages) live += life.live_bytes;
    return live;
  };
  constexpr double kWalked = 10. * kMiBPages * 4000;
  EXPECT_NEAR(live_of(estimate(20 * kMiB, true, 5 * kMiB)), kWalked + 5. * kMiB, 0.1 * kMiB);
  // At a peak that was not polled there is no count, and pages are in use as far as samples allow.
  EXPECT_NEAR(live_of(estimate(20 * kMiB, true)), kWalked + 10. * kMiB, 0.1 * kMiB);
  EXPECT_NEAR(live_of(estimate(20 * kMiB, true, {}, {}, 2. * kMiB)), kWalked + 2. * kMiB, 0.1 * kMiB);
  EXPECT_NEAR(live_of(estimate(20 * kMiB, true, 5 * kMiB, 5 * kMiB, -2. * kMiB)), kWalked - 2. * kMiB, 0.1 * kMiB);
}

// The kernel makes one mapping of a program's and of an allocator's that touch: an allocator of the program's own,
// beside glibc's blocks.
TEST_F(EstimatedWalkTest, BlocksBesideAProgramsMappingMakeNoHeapOfIt) {
  walked_.has_liveness = true;
  walked_.live_pages = {{page(60 * kMiBPages), std::vector<PageLife>(kMiBPages, {4000, false, true})}};
  walked_.runs.push_back({.start = page(60 * kMiBPages), .end = page(61 * kMiBPages), .exclusive = true});
  space_ = AddressSpace{};
  space_.map(page(0), 50 * kMiB, {Owner::program, kFirst});
  space_.touched().observe(
      {.begin_ns = 100, .vmas = walked_.vmas, .runs = walked_.runs, .inherited = walked_.inherited});
  touch_all(10 * kMiBPages, 20 * kMiBPages);
  const EstimatedWalk walk = estimate(21 * kMiB, true, 5 * kMiB);
  ASSERT_EQ(walk.live_pages.size(), 1U);
  EXPECT_EQ(walk.live_pages.front().start, page(60 * kMiBPages));
  EXPECT_NEAR(static_cast<double>(bytes_of(walk).at(kFirst)), 20. * kMiB, 0.1 * kMiB);
}

std::vector<trace::Poll> polls_of(const std::vector<std::uint64_t>& sizes_mib) {
  std::vector<trace::Poll> polls;
  for (std::size_t i = 0; i < sizes_mib.size(); ++i)
    polls.push_back({(i + 1) * 50'000'000, sizes_mib[i] * kMiBPages, 0, 0, 0});
  return polls;
}

std::vector<std::uint64_t> sizes_of(const std::vector<trace::Poll>& moments) {
  std::vector<std::uint64_t> sizes;
  for (const trace::Poll& poll : moments) sizes.push_back(poll.rss_pages / kMiBPages);
  return sizes;
}

TEST(MomentsBetweenWalks, AreWhereTheSizeIsAnotherThanAtTheWalk) {
  const std::vector<WalkMoment> walks{{.begin_ns = 1, .end_ns = 2, .rss_pages = 100 * kMiBPages}};
  EXPECT_TRUE(moments_between_walks(polls_of({100, 100, 101, 100}), walks).empty());
  EXPECT_EQ(sizes_of(moments_between_walks(polls_of({100, 100, 100, 400, 100, 100, 100}), walks)),
            (std::vector<std::uint64_t>{400, 100}));
  EXPECT_EQ(sizes_of(moments_between_walks(polls_of({100, 100, 100, 100, 90}), walks)),
            (std::vector<std::uint64_t>{90}));
}

TEST(MomentsBetweenWalks, TheLastSizeBeforeTheEndIsOneOfThem) {
  std::vector<trace::Poll> polls = polls_of({100, 100, 100});
  polls.back().rss_pages += 100;
  const std::vector<WalkMoment> walks{{.begin_ns = 1, .end_ns = 2, .rss_pages = 100 * kMiBPages}};
  EXPECT_EQ(moments_between_walks(polls, walks).size(), 1U);
  const std::vector<WalkMoment> another{walks.front(),
                                        {.begin_ns = 900'000'000, .end_ns = 900'000'001, .rss_pages = 1}};
  EXPECT_TRUE(moments_between_walks(polls, another).empty()) << "of so little the next walk tells";
}

TEST(MomentsBetweenWalks, WhatAWalkTellsIsLeftToIt) {
  const std::vector<WalkMoment> walks{{.begin_ns = 1, .end_ns = 2, .rss_pages = 100 * kMiBPages},
                                      {.begin_ns = 110'000'000, .end_ns = 115'000'000, .rss_pages = 200 * kMiBPages}};
  EXPECT_TRUE(moments_between_walks(polls_of({100, 200, 200, 200}), walks).empty());
}

TEST(MomentsBetweenWalks, OfAShortGapOnlyWhereItWasLargerThanBefore) {
  std::vector<WalkMoment> walks;
  for (const std::uint64_t at : {1, 260, 520})
    walks.push_back({.begin_ns = at * 1'000'000, .end_ns = at * 1'000'000 + 1, .rss_pages = 200 * kMiBPages});
  EXPECT_TRUE(moments_between_walks(polls_of({200, 50, 150, 200, 200}), walks).empty());
  EXPECT_EQ(sizes_of(moments_between_walks(polls_of({200, 100, 300, 200, 200, 300, 250, 300}), walks)),
            (std::vector<std::uint64_t>{100, 300, 200}));
  EXPECT_FALSE(moments_between_walks(polls_of({200, 50, 150, 200, 200}), walks, Copies::possible).empty());
  walks[1] = walks[2];
  walks.pop_back();
  EXPECT_FALSE(moments_between_walks(polls_of({200, 50, 150, 200, 200}), walks).empty()) << "half a second";
}

TEST(EdgesOfPhases, AreMomentsOnce) {
  std::vector<trace::Poll> moments = polls_of({100});
  add_edges(polls_of({100, 200, 300}), moments);
  EXPECT_EQ(sizes_of(moments), (std::vector<std::uint64_t>{100, 200, 300}));
}

TEST(EdgesOfPhases, OfManyThoseAfterTheLargestSteps) {
  std::vector<std::uint64_t> sizes(1000, 10);
  sizes[500] = 1000;
  std::vector<trace::Poll> moments;
  add_edges(polls_of(sizes), moments);
  EXPECT_LT(moments.size(), sizes.size());
  EXPECT_TRUE(std::ranges::is_sorted(moments, {}, &trace::Poll::time_ns));
  EXPECT_EQ(std::ranges::count(sizes_of(moments), 1000U), 1);
}

// Who copies pages takes faults and does not grow.
TEST(MomentsBetweenWalks, OfOneThatMayCopyFaultsCountToo) {
  const std::vector<WalkMoment> walks{{.begin_ns = 1, .end_ns = 2, .rss_pages = 100 * kMiBPages}};
  std::vector<trace::Poll> polls = polls_of({100, 100, 100, 100, 100, 100});
  for (std::size_t i = 3; i < polls.size(); ++i) polls[i].minor_faults = 20 * kMiBPages;
  EXPECT_TRUE(moments_between_walks(polls, walks).empty());
  const auto moments = moments_between_walks(polls, walks, Copies::possible);
  ASSERT_EQ(moments.size(), 1U);
  EXPECT_EQ(moments.front().minor_faults, 20 * kMiBPages);
  for (trace::Poll& poll : polls) poll.rss_pages += poll.minor_faults;
  EXPECT_EQ(moments_between_walks(polls, walks, Copies::possible).size(), moments_between_walks(polls, walks).size())
      << "new pages are no copies";
}

// The walk does not tell of them, and no poll before them is late enough to be in the gap.
TEST(MomentsBetweenWalks, CopiesRightAfterAWalkCount) {
  const std::vector<WalkMoment> walks{{.begin_ns = 60'000'000, .end_ns = 75'000'000, .rss_pages = 100 * kMiBPages},
                                      {.begin_ns = 900'000'000, .end_ns = 900'000'001, .rss_pages = 100 * kMiBPages}};
  std::vector<trace::Poll> polls = polls_of({100, 100, 100, 100, 100, 100});
  polls[1].minor_faults = 2 * kMiBPages;  // within 30 ms after the walk
  for (std::size_t i = 2; i < polls.size(); ++i) polls[i].minor_faults = 20 * kMiBPages;
  EXPECT_EQ(moments_between_walks(polls, walks, Copies::possible).size(), 1U);
  EXPECT_TRUE(moments_between_walks(polls, walks).empty());
  for (trace::Poll& poll : polls) poll.minor_faults = 20 * kMiBPages;
  EXPECT_TRUE(moments_between_walks(polls, walks, Copies::possible).empty()) << "those were before it";
}

// However large the process is: 1 % of it may be all that it copied.
TEST(MomentsBetweenWalks, CopiesOfTheLastPollBeforeTheEndCount) {
  const std::vector<WalkMoment> walks{{.begin_ns = 1, .end_ns = 2, .rss_pages = 1000 * kMiBPages}};
  std::vector<trace::Poll> polls = polls_of({1000, 1000, 1000});
  polls.back().minor_faults = 10 * kMiBPages;
  EXPECT_EQ(moments_between_walks(polls, walks, Copies::possible).size(), 1U);
  const std::vector<WalkMoment> at_once{{.begin_ns = 1, .end_ns = polls[1].time_ns, .rss_pages = 1000 * kMiBPages}};
  EXPECT_EQ(moments_between_walks(polls, at_once, Copies::possible).size(), 1U) << "since the poll before";
  polls.back().minor_faults = kMiBPages / 2;
  EXPECT_TRUE(moments_between_walks(polls, walks, Copies::possible).empty());
}

TEST(MomentsBetweenWalks, AreFewHoweverLongNobodyLooks) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < 10'000; ++i) sizes.push_back(100 + i % 7 * 50);
  const std::vector<WalkMoment> walks{{.begin_ns = 1, .end_ns = 2, .rss_pages = 100 * kMiBPages}};
  const auto moments = moments_between_walks(polls_of(sizes), walks);
  EXPECT_LE(moments.size(), 34U);
  EXPECT_EQ(std::ranges::max(sizes_of(moments)), 400U);
}

TEST(MomentsBetweenWalks, WithoutAnyWalkPollsAreAllThereIs) {
  EXPECT_EQ(sizes_of(moments_between_walks(polls_of({5, 5, 60, 60}), {})), (std::vector<std::uint64_t>{5, 60}));
  const std::vector<WalkMoment> late{{.begin_ns = 900'000'000, .end_ns = 900'000'001, .rss_pages = 30 * kMiBPages}};
  EXPECT_EQ(sizes_of(moments_between_walks(polls_of({5, 5, 60, 50}), late)), (std::vector<std::uint64_t>{60}));
  EXPECT_TRUE(moments_between_walks(polls_of({5, 5, 20}), late).empty());
}

Account account_of(double time_s, std::int64_t bytes) {
  Account account{.time_s = time_s, .rss_bytes = bytes, .pymalloc = {}, .slices = {}};
  account.slices.open().push_back({.site = {.cause = Cause::heap_live}, .bytes = bytes});
  return account;
}

TEST(HighWater, WhatNobodySawIsNotWalked) {
  ProcessAccount process;
  process.accounts = {account_of(1, 10 * kMiB), account_of(2, 50 * kMiB), account_of(3, 20 * kMiB)};
  process.high_water_bytes = 80 * kMiB;
  settle_high_water(process);
  ASSERT_EQ(process.accounts.size(), 4U);
  const Account& peak = process.accounts[1];
  EXPECT_EQ(peak.rss_bytes, 80 * kMiB);
  EXPECT_LT(peak.time_s, 2);
  EXPECT_EQ(peak.estimated_from_s, 1);
  ASSERT_EQ(peak.slices.size(), 2U);
  EXPECT_EQ(peak.slices[1].site.cause, Cause::not_looked_at);
  EXPECT_EQ(peak.slices[1].bytes, 30 * kMiB);
}

TEST(HighWater, MayHaveBeenReachedByExitHandlers) {
  ProcessAccount process;
  process.accounts = {account_of(1, 10 * kMiB), account_of(2, 20 * kMiB)};
  process.high_water_bytes = 80 * kMiB;
  process.teardown_s = 2;
  process.polls = {{.time_s = 2.5, .rss_bytes = 79 * kMiB}};
  settle_high_water(process);
  EXPECT_EQ(process.accounts.size(), 2U);
  process.teardown_s.reset();
  settle_high_water(process);
  EXPECT_EQ(process.accounts.size(), 3U);
}

TEST(HighWater, IsAtLeastWhatWasSeenAndSmallDifferencesAreNoise) {
  ProcessAccount process;
  process.accounts = {account_of(1, 50 * kMiB)};
  process.polls = {{.time_s = 2, .rss_bytes = 60 * kMiB}};
  process.high_water_bytes = 51 * kMiB;
  settle_high_water(process);
  EXPECT_EQ(process.high_water_bytes, 60 * kMiB);
  EXPECT_EQ(process.accounts.size(), 1U);
}

}  // namespace
}  // namespace whyrss::estimated_walk_test
