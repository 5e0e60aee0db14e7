// Which pages count as given up with MADV_FREE: what the calls said, bounded by what the kernel says.
#include "attribute/lazy_pages.h"

#include <gtest/gtest.h>

#include "attribute/address_space.h"
#include "attribute/attribute.h"

namespace whyrss::lazy_pages_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr auto kEarly = StackId{3};
constexpr auto kLate = StackId{4};
constexpr auto kSite = StackId{5};

std::uint64_t page(std::uint64_t number) { return number * kPage; }
std::int64_t pages(std::int64_t count) { return count * static_cast<std::int64_t>(kPage); }
using Advised = std::vector<AdvisedRange>;
using Lazy = std::vector<LazyRange>;

// 64 pages of a nameless mapping at page 16, all resident.
Evidence one_mapping() {
  Evidence evidence;
  evidence.traced = true;
  evidence.vmas = {{.start = page(16), .end = page(80), .path = {}, .writable = true}};
  evidence.runs = {{.start = page(16), .end = page(80), .exclusive = true}};
  evidence.owned = {{page(16), page(80), Owner::program, kSite}};
  return evidence;
}

Advised given_up(const AddressSpace& space) { return space.given_up().within(0, page(1000)); }

TEST(AdvisedPages, AreForgottenWithTheirPages) {
  AddressSpace space;
  space.map(page(16), 64 * kPage, {Owner::program, kSite});
  space.give_up_pages(page(20), 10 * kPage, kEarly);
  space.give_up_pages(page(28), 4 * kPage, kLate);
  EXPECT_EQ(given_up(space), (Advised{{page(20), page(28), kEarly, 1}, {page(28), page(32), kLate, 2}}));
  space.drop_pages(page(22), kPage);
  space.unmap(page(24), 2 * kPage);
  space.map(page(27), 2 * kPage, {Owner::program, kSite});
  EXPECT_EQ(given_up(space), (Advised{{page(20), page(22), kEarly, 1},
                                      {page(23), page(24), kEarly, 1},
                                      {page(26), page(27), kEarly, 1},
                                      {page(29), page(32), kLate, 2}}));
}

TEST(AdvisedPages, GoAlongWhenTheyAreMovedAndInherited) {
  AddressSpace space;
  space.map(page(16), 8 * kPage, {Owner::program, kSite});
  space.give_up_pages(page(18), 2 * kPage, kEarly);
  space.remap(page(16), 8 * kPage, page(100), 12 * kPage, kSite);
  const Advised moved{{page(102), page(104), kEarly, 1}};
  EXPECT_EQ(given_up(space), moved);
  EXPECT_EQ(given_up(space.forked()), moved);
  space.move_break(page(110), page(100), {Owner::program, kSite});
  EXPECT_TRUE(given_up(space).empty());
}

TEST(AdvisedPages, KnowWhereALargeBlockWasAllocatedSince) {
  AddressSpace space;
  space.map(page(16), 64 * kPage, {Owner::allocator, kSite});
  space.give_up_pages(page(20), 10 * kPage, kEarly);
  space.allocate(page(22) + 64, 2 * kPage, kLate);
  EXPECT_EQ(given_up(space), (Advised{{page(20), page(22), kEarly, 1},
                                      {page(22), page(25), kEarly, 1, true},
                                      {page(25), page(30), kEarly, 1}}));
  space.give_up_pages(page(20), 10 * kPage, kLate);
  EXPECT_EQ(given_up(space), (Advised{{page(20), page(30), kLate, 2}}));
}

TEST(AdvisedPages, GoWhenTheWalkDuringWhichTheyWentIsOver) {
  AddressSpace space;
  space.map(page(16), 64 * kPage, {Owner::program, kSite});
  space.give_up_pages(page(20), 4 * kPage, kEarly);
  space.begin_walk();
  space.unmap(page(16), 64 * kPage);
  EXPECT_EQ(given_up(space).size(), 1U);
  space.final_walk();
  EXPECT_TRUE(given_up(space).empty());
}

TEST(LazyPages, AreThoseGivenUpLastUpToTheKernelsSum) {
  const Advised advised{{page(20), page(30), kEarly, 1}, {page(30), page(40), kLate, 2}};
  const auto found = [&](std::int64_t count) {
    return find_lazy_pages({{page(16), page(80), pages(count)}}, advised, {}, one_mapping());
  };
  EXPECT_TRUE(found(0).empty());
  EXPECT_EQ(found(3), (Lazy{{page(37), page(40), kLate}}));
  EXPECT_EQ(found(12), (Lazy{{page(28), page(30), kEarly}, {page(30), page(40), kLate}}));
  EXPECT_EQ(found(60), (Lazy{{page(20), page(30), kEarly}, {page(30), page(40), kLate}}));
  EXPECT_TRUE(find_lazy_pages({}, advised, {}, one_mapping()).empty());
}

TEST(LazyPages, AreResidentInThatMappingAndOfTheProgramAlone) {
  Evidence evidence = one_mapping();
  evidence.vmas = {{.start = page(16), .end = page(30), .path = {}, .writable = true},
                   {.start = page(30), .end = page(40), .path = "/data", .backing = Backing::file, .writable = true},
                   {.start = page(40), .end = page(80), .path = {}, .writable = true}};
  evidence.runs = {{page(16), page(22)}, {page(30), page(40)}, {page(44), page(80)}};
  const Advised advised{{page(20), page(50), kEarly, 1}};
  EXPECT_EQ(find_lazy_pages({{page(16), page(30), pages(4)}, {page(30), page(40), pages(4)}}, advised, {}, evidence),
            (Lazy{{page(20), page(22), kEarly}}));
  EXPECT_EQ(find_lazy_pages({{page(40), page(80), pages(40)}}, advised, {}, evidence),
            (Lazy{{page(44), page(50), kEarly}}));
}

// Of a page where blocks live somebody has written; of a block that was allocated there later perhaps nobody.
TEST(LazyPages, LeaveOutLiveSmallBlocksAndComeLastToReusedPages) {
  Evidence evidence = one_mapping();
  const Advised advised{{page(20), page(30), kEarly, 1}, {page(30), page(40), kLate, 2, true}};
  const std::vector<LazyFreeSum> twelve{{page(16), page(80), pages(12)}};
  evidence.has_liveness = true;
  evidence.live_pages = {{.start = page(22),
                          .pages = {{.live_bytes = 16, .pymalloc = false, .ever_held = true},
                                    {.live_bytes = 0, .pymalloc = false, .ever_held = true},
                                    {.live_bytes = 8, .pymalloc = false, .ever_held = true}}}};
  EXPECT_EQ(find_lazy_pages(twelve, advised, {}, evidence), (Lazy{{page(20), page(22), kEarly},
                                                                  {page(23), page(24), kEarly},
                                                                  {page(25), page(30), kEarly},
                                                                  {page(36), page(40), kLate}}));
  evidence.has_liveness = false;
  evidence.live_pages.clear();
  LiveSet blocks;
  blocks.allocate({.address = page(21) - 16, .size_bytes = 64, .weight = 1, .stack = kSite});
  blocks.allocate({.address = page(28) + 512, .size_bytes = 64, .weight = 1, .stack = kSite});
  evidence.small_blocks = &blocks;
  EXPECT_EQ(find_lazy_pages({{page(16), page(80), pages(7)}}, advised, {}, evidence),
            (Lazy{{page(22), page(28), kEarly}, {page(29), page(30), kEarly}}));
}

// The kernel was asked a moment after the pages were walked.
TEST(LazyPages, WhatWasGivenUpSinceCountsInTheKernelsSum) {
  const Advised advised{{page(20), page(30), kEarly, 1}};
  const std::vector<LazyFreeSum> sums{{page(16), page(80), pages(12)}};
  EXPECT_EQ(find_lazy_pages(sums, advised, {{page(40), page(48)}}, one_mapping()),
            (Lazy{{page(26), page(30), kEarly}}));
  EXPECT_EQ(find_lazy_pages(sums, advised, {{page(28), page(34)}, {page(30), page(34)}}, one_mapping()),
            (Lazy{{page(22), page(30), kEarly}}));
  EXPECT_TRUE(find_lazy_pages(sums, advised, {{page(40), page(70)}}, one_mapping()).empty());
}

// Whoever's they are: of a mapping, of a live block, inherited.
TEST(LazyPages, AreClaimedBeforeForkAndHeap) {
  Evidence evidence = one_mapping();
  constexpr auto kBlock = StackId{6};
  evidence.owned = {{page(16), page(60), Owner::program, kSite}, {page(60), page(80), Owner::block, kBlock}};
  evidence.inherited = {{page(16), page(40), ForkClass::copied}};
  evidence.lazy_free = {{page(20), page(30), kEarly}, {page(38), page(42), kLate}, {page(70), page(80), kLate}};
  const Account account = attribute(evidence);
  std::int64_t lazy_bytes = 0;
  for (const Slice& slice : account.slices) {
    std::int64_t advised_bytes = 0;
    for (const AdviceShare& share : slice.advised) advised_bytes += share.bytes;
    EXPECT_EQ(advised_bytes, slice.site.cause == Cause::lazy_free ? slice.bytes : 0);
    if (slice.site.cause != Cause::lazy_free) continue;
    lazy_bytes += slice.bytes;
    if (slice.site.stack == kSite)
      EXPECT_EQ(slice.advised, (std::vector<AdviceShare>{{kEarly, pages(10)}, {kLate, pages(4)}}));
    else
      EXPECT_EQ(slice.advised, (std::vector<AdviceShare>{{kLate, pages(10)}}));
  }
  EXPECT_EQ(lazy_bytes, pages(24));
}

}  // namespace
}  // namespace whyrss::lazy_pages_test
