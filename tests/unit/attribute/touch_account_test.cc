// Who touched the bytes of each site: evidence that is written down here, to shares.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "attribute/attribute.h"

namespace whyrss::touch_account_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::int64_t kPageBytes = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr auto kMapper = StackId{2}, kFirst = StackId{3}, kSecond = StackId{4};
constexpr auto kLine = StackId{5}, kOtherLine = StackId{6};

std::uint64_t page(std::uint64_t number) { return kBase + number * kPage; }

TouchedRange sampled(std::uint64_t from, std::uint64_t to, double weight, StackId stack) {
  return {.start = page(from), .end = page(to), .weight = weight, .stack = stack};
}
TouchedRange counted(std::uint64_t from, std::uint64_t to, double part, StackId stack) {
  return {.start = page(from), .end = page(to), .weight = part, .stack = stack, .by_kernel = true};
}

// A mapping of the program's own, 800 pages, all resident.
Evidence mapping() {
  Evidence evidence;
  evidence.traced = true;
  evidence.vmas = {{.start = page(0), .end = page(800), .path = {}, .writable = true}};
  evidence.runs = {{.start = page(0), .end = page(800), .exclusive = true}};
  evidence.owned = {{page(0), page(800), Owner::program, kMapper}};
  return evidence;
}

const Slice& slice_of(const Account& account, Cause cause, StackId stack) {
  static const Slice kNone;
  for (const Slice& slice : account.slices)
    if (slice.site.cause == cause && slice.site.stack == stack) return slice;
  ADD_FAILURE() << "no such site";
  return kNone;
}

using Pages = std::map<std::pair<StackId, bool>, double>;
Pages pages_of(const Slice& slice) {
  Pages pages;
  std::int64_t sum = 0;
  for (const TouchShare& share : slice.touched) {
    EXPECT_GT(share.bytes, 0);
    pages[{share.stack, share.by_kernel}] += static_cast<double>(share.bytes) / kPageBytes;
    sum += share.bytes;
  }
  EXPECT_LE(sum, slice.bytes);
  return pages;
}
Pages pages_of(const Evidence& evidence) { return pages_of(slice_of(attribute(evidence), Cause::anonymous, kMapper)); }

TEST(TouchShares, ASampleStandsForItsFaults) {
  Evidence evidence = mapping();
  for (const std::uint64_t number : {0, 100, 200, 300, 400, 500})
    evidence.touched.push_back(sampled(number, number + 1, 100, kFirst));
  evidence.touched.push_back(sampled(600, 601, 100, kSecond));
  evidence.touched.push_back(sampled(700, 701, 100, kSecond));
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, false}, 600}, {{kSecond, false}, 200}}));
}

TEST(TouchShares, AreScaledDownToTheirSite) {
  Evidence evidence = mapping();
  for (std::uint64_t number = 0; number < 40; ++number)  // 40 x 10 x 4 pages: not every fault brought in four
    evidence.touched.push_back(sampled(number * 20, number * 20 + 4, 10, number % 4 == 0 ? kFirst : kSecond));
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, false}, 200}, {{kSecond, false}, 600}}));
}

TEST(TouchShares, FillTheirSiteWhereTheyFallShortByChance) {
  Evidence evidence = mapping();
  for (std::uint64_t number = 0; number < 7; ++number)  // 700 of 800, standard error 263
    evidence.touched.push_back(sampled(number * 100, number * 100 + 1, 100, kFirst));
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, false}, 800}}));
  EXPECT_EQ(slice_of(attribute(evidence), Cause::anonymous, kMapper).touched.front().variance, 0);  // all of it
}

TEST(TouchShares, LeaveOpenWhatNoSampleTells) {
  Evidence evidence = mapping();
  for (const std::uint64_t number : {10, 20, 30, 40})
    evidence.touched.push_back(sampled(number, number + 1, 10, kFirst));
  const Account account = attribute(evidence);
  const Slice& slice = slice_of(account, Cause::anonymous, kMapper);
  EXPECT_EQ(pages_of(slice), (Pages{{{kFirst, false}, 40}}));
  EXPECT_DOUBLE_EQ(slice.touched.front().variance, 4 * 0.9 * std::pow(10 * 4096.0, 2));
  EXPECT_EQ(slice.bytes, 800 * kPageBytes);
}

TEST(TouchShares, EverySampleOfAllFaultsIsExact) {
  Evidence evidence = mapping();
  for (std::uint64_t number = 0; number < 799; ++number)
    evidence.touched.push_back(sampled(number, number + 1, 1, number < 599 ? kFirst : kSecond));
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, false}, 599}, {{kSecond, false}, 200}}));
}

TEST(TouchShares, WhatTheKernelBroughtInIsCountedFirst) {
  Evidence evidence = mapping();
  evidence.touched = {counted(0, 500, 0.8, kSecond)};
  for (std::uint64_t number = 500; number < 800; ++number)
    evidence.touched.push_back(sampled(number, number + 1, 2, kFirst));
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, false}, 400}, {{kSecond, true}, 400}}));
}

TEST(TouchShares, AReadThatStandsForOthersIsASample) {
  // 50 reads of 16 pages, of which each eighth was measured; the last one by chance was not.
  Evidence evidence = mapping();
  for (std::uint64_t number = 0; number < 6; ++number) {
    evidence.touched.push_back(counted(number * 128, number * 128 + 16, 1, kFirst));
    evidence.touched.back().calls = 8;
  }
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, true}, 800}}));

  // One that was counted itself comes first.
  evidence.touched.push_back(counted(770, 790, 1, kSecond));
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, true}, 780}, {{kSecond, true}, 20}}));
}

TEST(TouchShares, AHugePageIsSplitAmongItsSites) {
  Evidence evidence = mapping();
  evidence.owned = {{page(0), page(300), Owner::program, kMapper}, {page(300), page(800), Owner::program, kLine}};
  evidence.touched = {sampled(0, 512, 1, kFirst)};
  const Account account = attribute(evidence);
  EXPECT_EQ(pages_of(slice_of(account, Cause::anonymous, kMapper)), (Pages{{{kFirst, false}, 300}}));
  EXPECT_EQ(pages_of(slice_of(account, Cause::anonymous, kLine)), (Pages{{{kFirst, false}, 212}}));
}

TEST(TouchShares, TheErrorOfASampleIsThatOfAllItsParts) {
  Evidence evidence = mapping();
  evidence.vmas.front().end = page(80000);
  evidence.runs = {{.start = page(0), .end = page(100), .exclusive = true},
                   {.start = page(100), .end = page(80000), .exclusive = false}};
  evidence.owned.front().end = page(80000);
  evidence.touched = {sampled(0, 512, 4, kFirst)};
  const Account account = attribute(evidence);
  const Slice& slice = slice_of(account, Cause::anonymous, kMapper);
  EXPECT_EQ(pages_of(slice), (Pages{{{kFirst, false}, 2048}}));
  EXPECT_DOUBLE_EQ(slice.touched.front().variance, 0.75 * std::pow(4 * 512 * 4096.0, 2));
}

TEST(TouchShares, OfAMappedFileTheySpeakForAll) {
  Evidence evidence = mapping();
  evidence.vmas.front() = {.start = page(0), .end = page(800), .path = "/data", .backing = Backing::file};
  evidence.runs.front().file = true;
  for (const std::uint64_t number : {16, 160, 320}) evidence.touched.push_back(sampled(number, number + 16, 2, kFirst));
  evidence.touched.push_back(sampled(480, 496, 2, kSecond));
  EXPECT_EQ(pages_of(slice_of(attribute(evidence), Cause::file_cache, kMapper)),
            (Pages{{{kFirst, false}, 600}, {{kSecond, false}, 200}}));
  evidence.owned.clear();  // mapped before anybody looked: some pages may be older than the samples
  EXPECT_EQ(pages_of(slice_of(attribute(evidence), Cause::file_cache, kEmptyStack)),
            (Pages{{{kFirst, false}, 96}, {{kSecond, false}, 32}}));
}

TEST(TouchShares, AreKeptForFilesAndCopiesAlike) {
  Evidence evidence = mapping();
  evidence.owned.clear();
  evidence.vmas = {{.start = page(0), .end = page(800), .path = "/data", .backing = Backing::file, .writable = true}};
  evidence.runs = {{.start = page(0), .end = page(400), .file = true},
                   {.start = page(400), .end = page(800), .exclusive = true}};
  for (std::uint64_t number = 0; number < 400; number += 32)
    evidence.touched.push_back(sampled(number, number + 16, 2, kFirst));
  for (std::uint64_t number = 400; number < 800; number += 2)
    evidence.touched.push_back(sampled(number, number + 1, 2, kSecond));
  const Account account = attribute(evidence);
  EXPECT_EQ(pages_of(slice_of(account, Cause::file_cache, kEmptyStack)), (Pages{{{kFirst, false}, 400}}));
  EXPECT_EQ(pages_of(slice_of(account, Cause::file_cow, kEmptyStack)), (Pages{{{kSecond, false}, 400}}));
}

// [heap], 800 pages of which `live` bytes each are live.
Evidence heap_of(std::uint16_t live_bytes, std::size_t pages = 800) {
  Evidence evidence = mapping();
  evidence.vmas.front().path = "[heap]";
  evidence.owned.clear();
  evidence.has_liveness = true;
  evidence.live_pages = {{page(0), std::vector<PageLife>(pages, {live_bytes, false, true})}};
  return evidence;
}

TEST(HeapTouch, ExactBlocksShareTheirPage) {
  Evidence evidence = heap_of(2048);
  evidence.exact_blocks = true;
  LiveSet blocks;
  for (std::uint64_t number = 0; number < 800; ++number) {
    const std::uint32_t first_bytes = number < 400 ? 1536 : 512;
    ASSERT_EQ(blocks.allocate({page(number), first_bytes, 1, kLine}), LiveSet::Outcome::added);
    ASSERT_EQ(blocks.allocate({page(number) + 2048, 2048 - first_bytes, 1, kOtherLine}), LiveSet::Outcome::added);
    evidence.touched.push_back(sampled(number, number + 1, 1, number < 400 ? kFirst : kSecond));
  }
  evidence.small_blocks = &blocks;
  const Account account = attribute(evidence);
  const Pages by_line{{{kFirst, false}, 150}, {{kSecond, false}, 50}};
  const Pages by_other{{{kFirst, false}, 50}, {{kSecond, false}, 150}};
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_live, kLine)), by_line);
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_live, kOtherLine)), by_other);
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_slack, kLine)), by_line);
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_slack, kOtherLine)), by_other);
}

TEST(HeapTouch, OfSampledBlocksTheNearestTells) {
  Evidence evidence = heap_of(4096);
  LiveSet blocks;
  for (std::uint64_t number = 5; number < 800; number += 16)
    ASSERT_EQ(blocks.allocate({page(number), 64, 1024, number < 400 ? kLine : kOtherLine}), LiveSet::Outcome::added);
  evidence.small_blocks = &blocks;
  for (std::uint64_t number = 0; number < 800; number += 4)
    evidence.touched.push_back(sampled(number, number + 1, 4, number < 400 ? kFirst : kSecond));
  const Account account = attribute(evidence);
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_live, kLine)), (Pages{{{kFirst, false}, 400}}));
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_live, kOtherLine)), (Pages{{{kSecond, false}, 400}}));
}

TEST(HeapTouch, ArenasBelongToTheCallThatMappedThem) {
  Evidence evidence = heap_of(1024);
  evidence.vmas.front().path = "";
  evidence.live_pages.front().pages.assign(800, {1024, true, true});
  evidence.owned = {{page(0), page(400), Owner::pymalloc, kLine}, {page(400), page(800), Owner::pymalloc, kOtherLine}};
  for (std::uint64_t number = 0; number < 800; ++number)
    evidence.touched.push_back(sampled(number, number + 1, 1, number < 400 ? kFirst : kSecond));
  const Account account = attribute(evidence);
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_live, kLine)), (Pages{{{kFirst, false}, 100}}));
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_slack, kOtherLine)), (Pages{{{kSecond, false}, 300}}));
}

TEST(HeapTouch, LargeBlocksKeptPagesMetadataAndTheRestHaveTheirOwn) {
  Evidence evidence = heap_of(0, 600);
  evidence.owned = {{page(0), page(200), Owner::block, kLine}};
  evidence.held_blocks = {{page(200), page(400), kOtherLine}};
  evidence.live_pages.front().pages.assign(600, {});
  for (std::uint64_t number = 0; number < 800; ++number)
    evidence.touched.push_back(sampled(number, number + 1, 1, number < 300 ? kFirst : kSecond));
  const Account account = attribute(evidence);
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_live, kLine)), (Pages{{{kFirst, false}, 200}}));
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_retained, kOtherLine)),
            (Pages{{{kFirst, false}, 100}, {{kSecond, false}, 100}}));
  EXPECT_EQ(pages_of(slice_of(account, Cause::heap_metadata, kEmptyStack)), (Pages{{{kSecond, false}, 1}}));
  EXPECT_EQ(pages_of(slice_of(account, Cause::unknown, kEmptyStack)), (Pages{{{kSecond, false}, 399}}));
}

TEST(HeapTouch, WithoutBlocksTheTouchGoesToTheBytesOfNobody) {
  Evidence evidence = heap_of(4096);
  LiveSet none;
  evidence.small_blocks = &none;
  for (std::uint64_t number = 0; number < 800; ++number)
    evidence.touched.push_back(sampled(number, number + 1, 1, kFirst));
  EXPECT_EQ(pages_of(slice_of(attribute(evidence), Cause::heap_live, kEmptyStack)), (Pages{{{kFirst, false}, 800}}));
}

// 40 segments of 16 pages, made at one line; one fault of 100 is sampled.
Evidence segments() {
  Evidence evidence;
  evidence.traced = true;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::uint64_t first = i * 20, last = first + 16;
    evidence.vmas.push_back({.start = page(first),
                             .end = page(last),
                             .path = "/dev/shm/torch_" + std::to_string(i),
                             .backing = Backing::shmem,
                             .shared = true,
                             .writable = true});
    evidence.runs.push_back({.start = page(first), .end = page(last), .file = true, .exclusive = true});
    evidence.owned.push_back({page(first), page(last), Owner::program, kMapper});
  }
  return evidence;
}

TEST(TouchShares, SmallMappingsOfOneLineAreFittedTogether) {
  Evidence evidence = segments();
  for (const std::uint64_t number : {3, 205, 401, 603})  // in four of them; in two others by somebody else
    evidence.touched.push_back(sampled(number, number + 1, 100, kFirst));
  evidence.touched.push_back(sampled(705, 706, 100, kSecond));
  evidence.touched.push_back(sampled(783, 784, 100, kSecond));
  const Account account = attribute(evidence);
  ASSERT_EQ(account.slices.size(), 40U);
  std::int64_t first = 0, second = 0;
  double first_variance = 0;
  for (const Slice& slice : account.slices) {
    const Pages pages = pages_of(slice);
    EXPECT_NEAR(pages.at({kFirst, false}), 32.0 / 3, 0.01);
    EXPECT_NEAR(pages.at({kSecond, false}), 16.0 / 3, 0.01);
    for (const TouchShare& share : slice.touched) (share.stack == kFirst ? first : second) += share.bytes;
    for (const TouchShare& share : slice.touched) first_variance += share.stack == kFirst ? share.variance : 0;
  }
  EXPECT_EQ(first + second, 640 * kPageBytes);
  // The errors of all sum to that of one site with these samples.
  const double of_sample = 0.99 * std::pow(640.0 / 6 * 4096, 2);
  EXPECT_NEAR(first_variance / (4 * of_sample / 9 + 2 * of_sample * 4 / 9), 1, 1e-6);
}

TEST(TouchShares, WhatWasCountedInASmallMappingIsItsOwn) {
  Evidence evidence = segments();
  evidence.touched = {counted(0, 16, 1, kSecond)};
  for (const std::uint64_t number : {205, 401, 603, 783})
    evidence.touched.push_back(sampled(number, number + 1, 150, kFirst));
  const Account account = attribute(evidence);
  for (const Slice& slice : account.slices) {
    const std::pair toucher{slice.site.mapping == "/dev/shm/torch_0" ? kSecond : kFirst,
                            slice.site.mapping == "/dev/shm/torch_0"};
    EXPECT_EQ(pages_of(slice), (Pages{{toucher, 16}})) << slice.site.mapping;
  }
}

TEST(TouchShares, MappingsOfOtherLinesTellNothingOfThem) {
  Evidence evidence = segments();
  for (std::size_t i = 0; i < 20; ++i) evidence.owned[i].stack = kOtherLine;
  for (const std::uint64_t number : {3, 45, 205, 301})
    evidence.touched.push_back(sampled(number, number + 1, 100, kFirst));
  const Account account = attribute(evidence);
  for (const Slice& slice : account.slices) EXPECT_EQ(slice.touched.empty(), slice.site.stack == kMapper);
}

TEST(TouchShares, HostileWeightsStayWithinTheirSite) {
  Evidence evidence = mapping();
  evidence.touched = {sampled(0, 1, 4294967295.0, kFirst), sampled(1, 2, 4294967295.0, kSecond)};
  EXPECT_EQ(pages_of(evidence), (Pages{{{kFirst, false}, 400}, {{kSecond, false}, 400}}));
}

}  // namespace
}  // namespace whyrss::touch_account_test
