// The heap, byte by byte: what is live, slack, retained, metadata and not known on pages that are written down here,
// and which lines get it.
#include "attribute/heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "attribute/attribute.h"

namespace whyrss::heap_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr auto kCall = StackId{3};
constexpr auto kOther = StackId{4};
constexpr auto kArena = StackId{5};

std::uint64_t page(std::uint64_t number) { return number * kPage; }

PageLife holds(std::uint16_t live_bytes) { return {live_bytes, false, true}; }
PageLife pool(std::uint16_t live_bytes) { return {live_bytes, true, true}; }

// [heap] from page 16 to 32, of which the first 8 pages are resident, with a liveness table.
Evidence heap_of(std::vector<PageLife> pages) {
  Evidence evidence;
  evidence.traced = true;
  evidence.vmas = {{.start = page(16), .end = page(32), .path = "[heap]", .writable = true}};
  evidence.runs = {{page(16), page(24), false, true}};
  evidence.has_liveness = true;
  evidence.live_pages = {{page(16), std::move(pages)}};
  return evidence;
}

Account checked(const Evidence& evidence) {
  Account account = attribute(evidence);
  std::int64_t total = 0;
  for (const Slice& slice : account.slices) {
    EXPECT_GT(slice.bytes, 0);
    EXPECT_LE(slice.exclusive_bytes, slice.bytes);
    EXPECT_GE(slice.variance, 0);
    total += slice.bytes;
  }
  EXPECT_EQ(total, account.rss_bytes);
  return account;
}

using Bytes = std::map<std::pair<Cause, StackId>, std::int64_t>;

Bytes bytes_of(const Account& account) {
  Bytes bytes;
  for (const Slice& slice : account.slices) bytes[{slice.site.cause, slice.site.stack}] += slice.bytes;
  return bytes;
}

Bytes bytes_of(const Evidence& evidence) { return bytes_of(checked(evidence)); }

double variance_of(const Account& account, Cause cause, StackId stack) {
  for (const Slice& slice : account.slices)
    if (slice.site.cause == cause && slice.site.stack == stack) return slice.variance;
  return -1;
}

TEST(HeapBytes, EveryByteOfAPageHasOneCause) {
  const Account account = checked(heap_of({holds(4096), holds(1000), holds(0), {}}));
  EXPECT_TRUE(account.has_liveness);
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_live, kEmptyStack}, 4096 + 1000},
                                      {{Cause::heap_slack, kEmptyStack}, 3096},
                                      {{Cause::heap_retained, kEmptyStack}, 4096},
                                      {{Cause::heap_metadata, kEmptyStack}, 4096},
                                      {{Cause::unknown, kEmptyStack}, 4 * 4096}}));
}

TEST(HeapBytes, LargeBlocksAreLiveByTheirAddress) {
  Evidence evidence = heap_of({holds(500), {}, {}, holds(0), {}});
  evidence.owned = {{page(16) + 1000, page(18) + 96, Owner::block, kCall}, {page(22), page(40), Owner::block, kOther}};
  evidence.held_blocks = {{page(16), page(19), kCall}, {page(20), page(22), kArena}, {page(22), page(40), kOther}};
  const std::int64_t call_bytes = 3096 + 4096 + 96;
  // Page 16: 500 small bytes beside 3096 large ones, 500 free; page 18: 4000 free, pinned by the block's end.
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::heap_live, kCall}, call_bytes},
                                       {{Cause::heap_live, kEmptyStack}, 500},
                                       {{Cause::heap_live, kOther}, 2 * 4096},
                                       {{Cause::heap_slack, kCall}, 4000 + 430},
                                       {{Cause::heap_slack, kEmptyStack}, 70},
                                       {{Cause::heap_retained, kEmptyStack}, 4096},
                                       {{Cause::heap_retained, kArena}, 2 * 4096}}));
}

TEST(HeapBytes, MoreThanAPageIsNeverLive) {
  Evidence evidence = heap_of({holds(4000)});
  evidence.owned = {{page(10), page(16) + 1000, Owner::block, kCall}};
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::heap_live, kCall}, 1000},
                                       {{Cause::heap_live, kEmptyStack}, 3096},
                                       {{Cause::heap_metadata, kEmptyStack}, 4096},
                                       {{Cause::unknown, kEmptyStack}, 6 * 4096}}));
}

TEST(HeapBytes, PagesSharedWithTheProgramsBreakAreSplit) {
  Evidence evidence = heap_of({holds(4096)});
  evidence.owned = {{page(16) + 96, page(32), Owner::program, kCall}};
  evidence.live_pages = {{page(16), {holds(4096)}}};
  evidence.live_pages[0].pages[0].live_bytes = 0;
  EXPECT_EQ(bytes_of(evidence),
            (Bytes{{{Cause::heap_retained, kEmptyStack}, 96}, {{Cause::anonymous, kCall}, 8 * 4096 - 96}}));
}

TEST(HeapBytes, InheritedPagesAreTheForks) {
  Evidence evidence = heap_of({holds(4096), holds(4096), holds(1)});
  evidence.inherited = {{page(16), page(18), ForkClass::copied}};
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::fork_cow, kEmptyStack}, 2 * 4096},
                                       {{Cause::heap_live, kEmptyStack}, 1},
                                       {{Cause::heap_slack, kEmptyStack}, 4095},
                                       {{Cause::heap_metadata, kEmptyStack}, 4096},
                                       {{Cause::unknown, kEmptyStack}, 4 * 4096}}));
}

TEST(HeapBytes, BesideBlocksAllocatorsKeepTheirHeaders) {
  Evidence evidence = heap_of({{}, {}, holds(0), {}, {}, {}, {}, {}});
  evidence.owned = {{page(22), page(23), Owner::block, kCall}};
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::heap_live, kCall}, 4096},
                                       {{Cause::heap_retained, kEmptyStack}, 4096},
                                       {{Cause::heap_metadata, kEmptyStack}, 4 * 4096},  // 17, 19, 21, 23
                                       {{Cause::unknown, kEmptyStack}, 2 * 4096}}));
}

TEST(HeapBytes, AnAlignedBlockHasAHeaderAtTheStartOfItsMapping) {
  Evidence evidence = heap_of({});
  evidence.vmas[0] = {.start = page(1040), .end = page(1100), .path = "", .writable = true};
  evidence.runs = {{page(1040), page(1041), false, true},  // the mapping's header; alignment: 64 KiB
                   {page(1055), page(1088), false, true}};
  evidence.owned = {{page(1056), page(1088), Owner::block, kCall}};
  evidence.held_blocks = {{page(1056), page(1088), kCall}};
  EXPECT_EQ(bytes_of(evidence),
            (Bytes{{{Cause::heap_live, kCall}, 32 * 4096}, {{Cause::heap_metadata, kEmptyStack}, 2 * 4096}}));
  evidence.vmas[0].start = evidence.runs[0].start = page(1020);  // too far away
  evidence.runs[0].end = page(1021);
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::heap_live, kCall}, 32 * 4096},
                                       {{Cause::heap_metadata, kEmptyStack}, 4096},
                                       {{Cause::unknown, kEmptyStack}, 4096}}));
}

TEST(HeapBytes, ThePageAtTheEndOfAnArenaHasAHeader) {
  Evidence evidence = heap_of({holds(4096)});
  evidence.runs = {{page(16), page(17), false, true}, {page(31), page(32), false, true}};
  EXPECT_EQ(bytes_of(evidence),
            (Bytes{{{Cause::heap_live, kEmptyStack}, 4096}, {{Cause::heap_metadata, kEmptyStack}, 4096}}));
  evidence.runs[1].start = page(30);
  EXPECT_EQ(bytes_of(evidence),
            (Bytes{{{Cause::heap_live, kEmptyStack}, 4096}, {{Cause::unknown, kEmptyStack}, 2 * 4096}}));
}

TEST(HeapBytes, WhatOnlyAHugePageMadeResidentIsFree) {
  Evidence evidence = heap_of({holds(4096)});
  evidence.vmas[0].end = page(512 + 32);
  evidence.runs = {{page(16), page(512 + 16), false, true, true}};
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::heap_live, kEmptyStack}, 4096},
                                       {{Cause::heap_retained, kEmptyStack}, (512 - 18) * 4096},
                                       {{Cause::heap_metadata, kEmptyStack}, 4096},
                                       {{Cause::unknown, kEmptyStack}, 16 * 4096}}));  // of a huge page without blocks
}

TEST(HeapLines, SamplesAreScaledToTheExactTotal) {
  LiveSet blocks;
  blocks.allocate({page(16), 2048, 10, kCall});          // stands for 20480
  blocks.allocate({page(17), 1024, 10, kOther});         // for 10240
  blocks.allocate({page(40), 1024, 10, kArena});         // not resident
  blocks.allocate({page(23) + 3072, 2048, 10, kOther});  // half of it resident, on a page of which nothing is known
  Evidence evidence = heap_of({holds(4096), holds(4096), holds(4096), holds(4096), holds(4096), holds(4096)});
  evidence.live_pages[0].pages.resize(8, holds(4096));
  evidence.small_blocks = &blocks;
  const Account account = checked(evidence);
  EXPECT_EQ(bytes_of(account),
            (Bytes{{{Cause::heap_live, kCall}, 8 * 4096 / 2}, {{Cause::heap_live, kOther}, 8 * 4096 / 2}}));
  // Scaled by 32768 / 40960; each has half: (k/2)^2 (V1 + V2), V1 = 0.9 * 20480^2, V2 = 2 * 0.9 * 10240^2.
  const double variance = 0.8 * 0.8 / 4 * 0.9 * (20480.0 * 20480 + 2 * 10240.0 * 10240);
  EXPECT_NEAR(variance_of(account, Cause::heap_live, kCall), variance, 1);
  EXPECT_NEAR(variance_of(account, Cause::heap_live, kOther), variance, 1);
}

TEST(HeapLines, OneSiteAloneDoesNotErr) {
  LiveSet blocks;
  blocks.allocate({page(16), 2048, 10, kCall});
  Evidence evidence = heap_of({holds(4096), holds(4096)});
  evidence.small_blocks = &blocks;
  const Account account = checked(evidence);
  EXPECT_EQ(bytes_of(account)[(std::pair{Cause::heap_live, kCall})], 2 * 4096);
  EXPECT_EQ(variance_of(account, Cause::heap_live, kCall), 0);
}

TEST(HeapLines, WithoutAnySampleNobodyIsNamed) {
  const LiveSet blocks;
  Evidence evidence = heap_of({holds(4096), holds(1)});
  evidence.owned = {{page(18), page(19) + 4000, Owner::block, kOther}};
  evidence.small_blocks = &blocks;
  const Bytes bytes = bytes_of(evidence);
  EXPECT_EQ(bytes.at({Cause::heap_live, kEmptyStack}), 4097);
  EXPECT_EQ(bytes.at({Cause::heap_live, kOther}), 4096 + 4000);
  EXPECT_EQ(bytes.at({Cause::heap_slack, kOther}), 96);
  EXPECT_EQ(bytes.at({Cause::heap_slack, kEmptyStack}), 4095);
}

TEST(HeapLines, SlackBelongsToTheBlocksThatPinThePage) {
  LiveSet blocks;
  blocks.allocate({page(16), 64, 1, kCall});
  blocks.allocate({page(17), 3000, 1, kOther});
  blocks.allocate({page(17) + 3000, 1000, 1, kCall});
  Evidence evidence = heap_of({holds(64), holds(4000)});
  evidence.small_blocks = &blocks;
  evidence.exact_blocks = true;
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::heap_live, kCall}, 1064},
                                       {{Cause::heap_live, kOther}, 3000},
                                       {{Cause::heap_slack, kCall}, 4032 + 24},
                                       {{Cause::heap_slack, kOther}, 72},
                                       {{Cause::heap_metadata, kEmptyStack}, 4096},
                                       {{Cause::unknown, kEmptyStack}, 5 * 4096}}));
}

// A sample stands for 128 blocks of 24 bytes: 8 bytes beside each are the allocator's. On the second page 1000 are
// free.
TEST(HeapBytes, HeadersOfLiveBlocksAreNotFree) {
  LiveSet blocks;
  blocks.allocate({page(16), 24, 128, kCall});
  Evidence evidence = heap_of({holds(3072), holds(2322)});
  evidence.small_blocks = &blocks;
  evidence.block_header_bytes = 8;
  Bytes bytes = bytes_of(evidence);
  EXPECT_EQ(bytes.at({Cause::heap_live, kCall}), 3072 + 2322);
  EXPECT_EQ(bytes.at({Cause::heap_slack, kCall}), 1000);
  EXPECT_EQ(bytes.at({Cause::heap_metadata, kEmptyStack}), 4096 + 1024 + 774);
  evidence.block_header_bytes = 0;
  EXPECT_EQ(bytes_of(evidence).at({Cause::heap_slack, kCall}), 1024 + 774 + 1000);
  // No more than lies beside live blocks.
  evidence = heap_of({holds(4000)});
  evidence.small_blocks = &blocks;
  evidence.block_header_bytes = 8;
  EXPECT_FALSE(bytes_of(evidence).contains({Cause::heap_slack, kCall}));
}

TEST(HeapLines, ExactModeNeverScalesUp) {
  LiveSet blocks;
  blocks.allocate({page(16), 1000, 1, kCall});
  Evidence evidence = heap_of({holds(4000)});
  evidence.small_blocks = &blocks;
  evidence.exact_blocks = true;
  const Account account = checked(evidence);
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_live, kCall}, 1000},
                                      {{Cause::heap_live, kEmptyStack}, 3000},
                                      {{Cause::heap_slack, kCall}, 24},
                                      {{Cause::heap_slack, kEmptyStack}, 72},
                                      {{Cause::heap_metadata, kEmptyStack}, 4096},
                                      {{Cause::unknown, kEmptyStack}, 6 * 4096}}));
  EXPECT_EQ(variance_of(account, Cause::heap_live, kCall), 0);
}

TEST(HeapBytes, KnownBlocksAreLiveWhereTheTableLostCount) {
  Evidence evidence = heap_of({holds(100), holds(500), holds(0)});
  LiveSet blocks;
  blocks.allocate({.address = page(16) + 8, .size_bytes = 1000, .stack = kCall});
  blocks.allocate({.address = page(17) + 8, .size_bytes = 400, .stack = kCall});
  evidence.small_blocks = &blocks;
  evidence.exact_blocks = true;
  evidence.counts_underflowed = true;
  EXPECT_EQ(bytes_of(evidence)[std::pair(Cause::heap_live, kCall)], 1000 + 400);
  EXPECT_EQ(bytes_of(evidence)[std::pair(Cause::heap_live, kEmptyStack)], 100);
  evidence.counts_underflowed = false;
  EXPECT_EQ(bytes_of(evidence)[std::pair(Cause::heap_live, kCall)], 600);
}

TEST(HeapLines, RetainedPagesBelongToWhoAllocatedThereLast) {
  LiveSet blocks;
  blocks.allocate({page(16), 64, 10, kOther});
  blocks.allocate({page(16) + 64, 64, 10, kCall});
  blocks.allocate({page(17), 64, 10, kOther});
  blocks.release(page(16));
  blocks.release(page(16) + 64);
  blocks.release(page(17));
  Evidence evidence = heap_of({holds(0), holds(0), holds(0), holds(0)});
  evidence.small_blocks = &blocks;
  const Account account = checked(evidence);
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_retained, kCall}, 2 * 4096},
                                      {{Cause::heap_retained, kOther}, 2 * 4096},
                                      {{Cause::heap_metadata, kEmptyStack}, 4096},
                                      {{Cause::unknown, kEmptyStack}, 3 * 4096}}));
  EXPECT_GT(variance_of(account, Cause::heap_retained, kCall), 0);  // 2 pages of 4 are told
  evidence.exact_blocks = true;
  EXPECT_EQ(bytes_of(evidence).at({Cause::heap_retained, kEmptyStack}), 2 * 4096);
}

Evidence arena_of(std::vector<PageLife> pages) {
  Evidence evidence = heap_of(std::move(pages));
  evidence.vmas[0].path = "";
  evidence.owned = {{page(16), page(32), Owner::pymalloc, kArena}};
  return evidence;
}

TEST(Pymalloc, WithoutBlocksTheArenasCallIsNamed) {
  const Account account = checked(arena_of({pool(4096), pool(3000), pool(0), {}}));
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_live, kArena}, 7096},
                                      {{Cause::heap_slack, kArena}, 1096},
                                      {{Cause::heap_retained, kArena}, 6 * 4096}}));
  EXPECT_TRUE(account.has_liveness);
  EXPECT_EQ(account.pymalloc.live, 7096);
  EXPECT_EQ(account.pymalloc.slack, 1096);
  EXPECT_EQ(account.pymalloc.retained, 6 * 4096);
}

TEST(Pymalloc, BlocksGiveTheLinesWhereTheyAreKnown) {
  LiveSet blocks;
  blocks.allocate({page(16) + 48, 49, 1, kCall});  // takes 64
  blocks.allocate({page(16) + 112, 64, 1, kOther});
  Evidence evidence = arena_of({pool(128)});
  evidence.small_blocks = &blocks;
  evidence.exact_blocks = true;
  const Bytes bytes = bytes_of(evidence);
  EXPECT_EQ(bytes.at({Cause::heap_live, kCall}), 64);
  EXPECT_EQ(bytes.at({Cause::heap_live, kOther}), 64);
  EXPECT_EQ(bytes.at({Cause::heap_slack, kCall}), (4096 - 128) / 2);
}

TEST(Pymalloc, ArenasWhosePoolsWereNotReadCountAsFull) {
  const Account account = checked(arena_of({}));
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_live, kArena}, 8 * 4096}}));
  EXPECT_FALSE(account.has_liveness);
}

TEST(Pymalloc, SamplesOfMallocSayNothingAboutArenas) {
  LiveSet blocks;
  blocks.allocate({page(64), 512, 10, kCall});
  Evidence evidence = arena_of({pool(4096)});
  evidence.vmas.push_back({.start = page(64), .end = page(65), .path = "", .writable = true});
  evidence.runs.push_back({page(64), page(65), false, true});
  evidence.live_pages.push_back({page(64), {holds(4096)}});
  evidence.small_blocks = &blocks;
  const Bytes bytes = bytes_of(evidence);
  EXPECT_EQ(bytes.at({Cause::heap_live, kArena}), 4096);
  EXPECT_EQ(bytes.at({Cause::heap_live, kCall}), 4096);
}

TEST(WithoutLiveness, SamplesSayHowMuchIsLive) {
  LiveSet blocks;
  blocks.allocate({page(16), 512, 8, kCall});
  blocks.allocate({page(17), 512, 4, kOther});
  Evidence evidence = heap_of({});
  evidence.has_liveness = false;
  evidence.live_pages.clear();
  evidence.small_blocks = &blocks;
  const Account account = checked(evidence);
  EXPECT_FALSE(account.has_liveness);
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_live, kCall}, 4096},
                                      {{Cause::heap_live, kOther}, 2048},
                                      {{Cause::heap_retained, kEmptyStack}, 8 * 4096 - 6144}}));
  EXPECT_NEAR(variance_of(account, Cause::heap_live, kCall), 0.875 * 4096 * 4096, 1);
}

TEST(WithoutLiveness, SamplesAboveTheHeapAreCutDown) {
  LiveSet blocks;
  blocks.allocate({page(16), 4096, 100, kCall});
  Evidence evidence = heap_of({});
  evidence.has_liveness = false;
  evidence.small_blocks = &blocks;
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::heap_live, kCall}, 8 * 4096}}));
}

TEST(WithoutLiveness, ExactBlocksAreTheTable) {
  LiveSet blocks;
  blocks.allocate({page(16) + 4000, 200, 1, kCall});
  blocks.allocate({page(18), 64, 1, kOther});
  blocks.allocate({page(19), 64, 1, kOther});
  blocks.release(page(19));
  Evidence evidence = heap_of({});
  evidence.has_liveness = false;
  evidence.small_blocks = &blocks;
  evidence.exact_blocks = true;
  const Account account = checked(evidence);
  EXPECT_TRUE(account.has_liveness);
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_live, kCall}, 200},
                                      {{Cause::heap_live, kOther}, 64},
                                      {{Cause::heap_slack, kCall}, 2 * 4096 - 200},
                                      {{Cause::heap_slack, kOther}, 4096 - 64},
                                      {{Cause::heap_retained, kOther}, 4096},
                                      {{Cause::heap_retained, kEmptyStack}, 4 * 4096}}));
}

TEST(WithoutLiveness, NothingKnownCountsAsLive) {
  Evidence evidence = heap_of({});
  evidence.has_liveness = false;
  const Account account = checked(evidence);
  EXPECT_EQ(bytes_of(account), (Bytes{{{Cause::heap_live, kEmptyStack}, 8 * 4096}}));
  EXPECT_FALSE(account.has_liveness);
}

TEST(HeapBytes, AHeapOfTerabytesIsReportedAsOne) {
  Evidence evidence = heap_of({holds(1)});
  evidence.vmas[0].end = std::uint64_t{1} << 46;
  evidence.runs = {{page(16), std::uint64_t{1} << 46, false, true}};
  evidence.owned = {{page(20), page(28), Owner::block, kCall}};
  const Account account = checked(evidence);
  EXPECT_EQ(bytes_of(account).at({Cause::heap_live, kCall}), 8 * 4096);
  EXPECT_EQ(bytes_of(account).size(), 2U);
  EXPECT_FALSE(account.has_liveness);
}

Evidence mapped_by(Owner owner, std::vector<PageLife> pages) {
  Evidence evidence = heap_of(std::move(pages));
  evidence.vmas[0].path = "";
  evidence.owned = {{page(16), page(20), owner, kCall}};
  return evidence;
}

TEST(HeapOwner, ProgramsMappingsAreTheirsUnlessTheyHoldBlocks) {
  // Blocks of an allocator lay at these addresses before.
  EXPECT_EQ(bytes_of(mapped_by(Owner::program, {holds(0), holds(0)})),
            (Bytes{{{Cause::anonymous, kCall}, 4 * 4096}, {{Cause::unknown, kEmptyStack}, 4 * 4096}}));
  EXPECT_EQ(bytes_of(mapped_by(Owner::program, {holds(0), holds(16)})),
            (Bytes{{{Cause::heap_live, kEmptyStack}, 16},
                   {{Cause::heap_slack, kEmptyStack}, 4080},
                   {{Cause::heap_retained, kEmptyStack}, 4096},
                   {{Cause::heap_metadata, kEmptyStack}, 2 * 4096},
                   {{Cause::unknown, kEmptyStack}, 4 * 4096}}));
}

TEST(HeapOwner, AroundFreedBlocksTheAllocatorsMappingIsItsOwn) {
  EXPECT_EQ(bytes_of(mapped_by(Owner::program, {{}, {}, {}, {}, {}, holds(0)})),
            (Bytes{{{Cause::anonymous, kCall}, 4 * 4096},
                   {{Cause::heap_retained, kEmptyStack}, 4096},
                   {{Cause::heap_metadata, kEmptyStack}, 2 * 4096},
                   {{Cause::unknown, kEmptyStack}, 4096}}));
  EXPECT_EQ(bytes_of(mapped_by(Owner::allocator, {holds(0)})), (Bytes{{{Cause::heap_retained, kEmptyStack}, 4096},
                                                                      {{Cause::heap_metadata, kEmptyStack}, 3 * 4096},
                                                                      {{Cause::unknown, kEmptyStack}, 4 * 4096}}));
}

TEST(HeapOwner, LibrarysMappingsAreKnownByItsBlocksAlone) {
  Evidence evidence = mapped_by(Owner::library, {});
  evidence.owned = {{page(16), page(17), Owner::block, kOther},
                    {page(17), page(18), Owner::library, kCall},
                    {page(18), page(18) + 1000, Owner::block, kOther},
                    {page(18) + 1000, page(24), Owner::library, kCall}};
  evidence.held_blocks = {{page(16), page(17), kOther}, {page(18), page(21), kOther}};
  const Bytes known{{{Cause::heap_live, kOther}, 4096 + 1000},
                    {{Cause::heap_slack, kOther}, 3096},
                    {{Cause::heap_retained, kOther}, 2 * 4096}};
  Bytes expected = known;
  expected[{Cause::heap_unsplit, kCall}] = 4 * 4096;
  EXPECT_EQ(bytes_of(evidence), expected);
  evidence.has_liveness = false;
  EXPECT_EQ(bytes_of(evidence), expected) << "no table is asked";
  LiveSet blocks;
  evidence.small_blocks = &blocks;
  evidence.exact_blocks = true;
  expected = known;
  expected[{Cause::heap_metadata, kEmptyStack}] = 4 * 4096;
  EXPECT_EQ(bytes_of(evidence), expected);
}

TEST(HeapOwner, SampledBlocksShowAnAllocatorsMappingWithoutATable) {
  LiveSet blocks;
  blocks.allocate({page(22), 512, 8, kOther});
  Evidence evidence = mapped_by(Owner::program, {});
  evidence.has_liveness = false;
  evidence.small_blocks = &blocks;
  EXPECT_EQ(bytes_of(evidence), (Bytes{{{Cause::anonymous, kCall}, 4 * 4096},
                                       {{Cause::heap_live, kOther}, 4096},
                                       {{Cause::heap_retained, kEmptyStack}, 3 * 4096}}));
}

// Poisson sampling of a heap whose lines are known: estimates are unbiased, and as far off as they say.
TEST(HeapLines, ErrorsAreAsLargeAsTheySay) {
  constexpr std::uint64_t kPages = 4000, kDistance = 64 * 1024;
  Evidence evidence = heap_of({});
  evidence.vmas[0].end = page(16 + kPages);
  evidence.runs = {{page(16), page(16 + kPages), false, true}};
  evidence.live_pages = {{page(16), std::vector<PageLife>(kPages, holds(4096))}};
  std::mt19937_64 random(1);  // the same on every machine
  double sum = 0, squares = 0, said = 0;
  constexpr int kRounds = 400;
  const double truth = kPages / 4.0 * 4096;  // every fourth page is one line's, with smaller blocks
  for (int round = 0; round < kRounds; ++round) {
    LiveSet blocks;
    for (std::uint64_t i = 0; i < kPages; ++i) {
      const bool first = i % 4 == 0;
      const std::uint32_t size = first ? 256 : 1024;
      const double p = 1 - std::exp(-static_cast<double>(size) / kDistance);
      for (std::uint64_t at = page(16 + i); at < page(17 + i); at += size)
        if (static_cast<double>(random() >> 11) * 0x1p-53 < p)
          blocks.allocate({at, size, static_cast<float>(1 / p), first ? kCall : kOther});
    }
    evidence.small_blocks = &blocks;
    const Account account = attribute(evidence);
    const double estimate = static_cast<double>(bytes_of(account)[{Cause::heap_live, kCall}]);
    sum += estimate;
    squares += (estimate - truth) * (estimate - truth);
    said += variance_of(account, Cause::heap_live, kCall);
  }
  EXPECT_NEAR(sum / kRounds, truth, 0.02 * truth);
  EXPECT_NEAR(std::sqrt(said / kRounds), std::sqrt(squares / kRounds), 0.1 * std::sqrt(squares / kRounds));
}

TEST(HeapBytes, AddUpForManyRandomHeaps) {
  std::mt19937_64 random(2);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  for (int round = 0; round < 300; ++round) {
    Evidence evidence = heap_of({});
    evidence.runs.clear();
    for (std::uint64_t at = 16 + below(3); at < 30; at += 1 + below(4)) {
      const std::uint64_t end = std::min<std::uint64_t>(32, at + 1 + below(6));
      evidence.runs.push_back({page(at), page(end), false, below(3) > 0});
      at = end;
    }
    if (below(2) == 0) evidence.vmas[0].path = "";
    evidence.live_pages[0].pages.resize(below(17));
    for (PageLife& life : evidence.live_pages[0].pages)
      life = {static_cast<std::uint16_t>(below(2) * below(4097)), below(4) == 0, below(2) == 0};
    for (std::uint64_t from = page(15) + below(9000); from < page(32);) {
      const std::uint64_t to = from + 1 + below(30000);
      evidence.owned.push_back({from, to, static_cast<Owner>(below(5)), StackId{static_cast<std::uint32_t>(below(4))}});
      from = to + below(9000);
    }
    for (std::uint64_t from = page(15 + below(9)); from < page(32); from += page(1 + below(5)))
      evidence.held_blocks.push_back({from, from + kPage, kArena});
    LiveSet blocks;
    for (std::uint64_t i = below(40); i > 0; --i)
      blocks.allocate({page(14) + below(20 * kPage), static_cast<std::uint32_t>(below(32768)),
                       static_cast<float>(1 + below(3)), StackId{static_cast<std::uint32_t>(below(4))}});
    if (below(4) > 0) evidence.small_blocks = &blocks;
    evidence.has_liveness = below(2) == 0;
    evidence.exact_blocks = below(2) == 0;
    checked(evidence);
  }
}

}  // namespace
}  // namespace whyrss::heap_test
