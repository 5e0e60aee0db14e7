// The picture of an address space: what each page is, and since when it has been there.
#include "model/page_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "attribute/attribute.h"
#include "attribute/picture/page_ages.h"
#include "attribute/picture/page_map_bound.h"
#include "attribute/picture/page_map_builder.h"

namespace whyrss::page_map_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr auto kCall = StackId{3};
constexpr auto kOther = StackId{4};

std::uint64_t page(std::uint64_t number) { return number * kPage; }

PageLife holds(std::uint16_t live_bytes) { return {live_bytes, false, true}; }

using Runs = std::vector<PageMapRun>;

PageMapRun run(std::uint64_t from, std::uint64_t to, Cause cause, StackId stack = kEmptyStack, std::uint8_t live = 16) {
  return {page(from), page(to), to - from, cause, stack, live};
}

PageMap picture_of(const Evidence& evidence) {
  PageMap picture;
  attribute(evidence, &picture);
  return picture;
}

Runs runs_of(const PageMap& picture) {
  Runs runs;
  for (const PageMapMapping& mapping : picture.mappings)
    runs.insert(runs.end(), mapping.runs.begin(), mapping.runs.end());
  return runs;
}

PageMapRun part(std::uint64_t start, std::uint64_t end, Cause cause, StackId stack) {
  return {.start = start, .end = end, .cause = cause, .stack = stack};
}

TEST(PageMap, APageOfTheHeapIsWhatMostOfItIs) {
  Evidence evidence;
  evidence.traced = true;
  evidence.vmas = {{.start = page(16), .end = page(64), .path = "[heap]", .writable = true}};
  evidence.runs = {{page(16), page(24), false, true}, {page(30), page(32), false, true}};
  evidence.has_liveness = true;
  evidence.live_pages = {{page(16), {holds(4096), holds(1000), holds(0), {}, holds(10)}}};
  evidence.owned = {{page(30), page(40), Owner::block, kCall}};
  evidence.held_blocks = {{page(30), page(40), kCall}};
  EXPECT_EQ(runs_of(picture_of(evidence)),
            (Runs{run(16, 17, Cause::heap_live), run(17, 18, Cause::heap_live, kEmptyStack, 4),
                  run(18, 19, Cause::heap_retained), run(19, 20, Cause::heap_metadata),
                  run(20, 21, Cause::heap_live, kEmptyStack, 1), run(21, 22, Cause::heap_metadata),
                  run(22, 24, Cause::unknown), run(30, 32, Cause::heap_live, kCall)}));
}

TEST(PageMap, SumsToTheCausesWhereNoPageHasTwo) {
  Evidence evidence;
  evidence.traced = true;
  evidence.vmas = {
      {.start = page(10), .end = page(20), .path = "/lib/a.so", .backing = Backing::file, .file_offset = page(3)},
      {.start = page(20), .end = page(30), .path = "", .writable = true},
      {.start = page(30), .end = page(40), .path = "", .writable = true},
      {.start = page(50), .end = page(60), .path = "", .writable = true}};
  evidence.runs = {
      {page(10), page(12), true, false}, {page(20), page(30), false, true}, {page(30), page(33), false, true}};
  evidence.owned = {{page(20), page(40), Owner::program, kOther}};
  PageMap picture;
  const Account account = attribute(evidence, &picture);
  std::map<Cause, std::int64_t> by_picture, by_account;
  for (const PageMapRun& each : runs_of(picture))
    by_picture[each.cause] += static_cast<std::int64_t>(each.pages * kPage);
  for (const Slice& slice : account.slices) by_account[slice.site.cause] += slice.bytes;
  EXPECT_EQ(by_picture, by_account);
  ASSERT_EQ(picture.mappings.size(), 3U);  // of the last one nothing is resident
  EXPECT_EQ(picture.mappings[0].file_offset, page(3));
  EXPECT_EQ(runs_of(picture), (Runs{run(10, 12, Cause::file_cache), run(20, 30, Cause::anonymous, kOther),
                                    run(30, 33, Cause::anonymous, kOther)}));  // a run is of one mapping
}

TEST(PageMapBuilder, OfPartsOfAPageTheLargestOneIsShown) {
  PageMapBuilder builder;
  builder.add(part(page(2) + 1024, page(5), Cause::heap_live, kOther));
  builder.add(part(page(1), page(2) + 1024, Cause::heap_live, kCall));
  builder.add(part(page(5), page(5) + 2048, Cause::anonymous, kCall));
  builder.add(part(page(5) + 2048, page(6), Cause::anonymous, kOther));
  EXPECT_EQ(runs_of(builder.build({{.start = page(0), .end = page(9), .path = ""}})),
            (Runs{run(1, 2, Cause::heap_live, kCall), run(2, 5, Cause::heap_live, kOther),
                  run(5, 6, Cause::anonymous, kCall)}));
}

TEST(PageAges, APageIsAsOldAsTheFirstWalkThatHasItWithoutABreak) {
  PageAges ages;
  const auto resident = [](std::uint64_t from, std::uint64_t to) {
    return ResidentRun{page(from), page(to), false, true};
  };
  ages.observe({resident(0, 10)}, 1);
  ages.observe({resident(0, 4), resident(6, 20)}, 2);
  ages.observe({resident(0, 8)}, 3);
  EXPECT_EQ(ages.ages(), (std::vector<PageAge>{{page(0), page(4), 1}, {page(4), page(6), 3}, {page(6), page(8), 1}}));
}

PageMap one_mapping(std::uint64_t from, std::uint64_t to, Runs runs) {
  PageMap map;
  map.mappings.resize(1);
  map.mappings[0].start = page(from);
  map.mappings[0].end = page(to);
  map.mappings[0].runs = std::move(runs);
  return map;
}

TEST(FinishPicture, ACellIsWhatMostOfItsPagesAre) {
  PageMap map = one_mapping(
      3, 40,
      {run(3, 4, Cause::heap_retained), run(4, 5, Cause::heap_live, kCall, 2), run(5, 6, Cause::heap_live, kOther, 4),
       run(6, 7, Cause::heap_live, kCall, 16), run(7, 8, Cause::heap_retained, kCall), run(20, 30, Cause::anonymous)});
  finish_picture(map, {{page(3), page(6), 1}, {page(6), page(8), 2}, {page(20), page(30), 3}}, 6);
  ASSERT_EQ(map.mappings.size(), 1U);
  EXPECT_EQ(map.mappings[0].cell_bytes, 4 * kPage);
  EXPECT_EQ(map.mappings[0].runs, (Runs{run(3, 4, Cause::heap_retained),
                                        {page(4), page(8), 4, Cause::heap_live, kCall, 7},  // (2 + 4 + 16) / 3
                                        {page(20), page(32), 10, Cause::anonymous}}));
  EXPECT_EQ(map.mappings[0].ages,
            (std::vector<PageAge>{{page(3), page(8), 1}, {page(20), page(32), 3}}));  // of equal parts the older one
}

TEST(FinishPicture, KeepsEachPageAndItsBoundWhateverTheRuns) {
  std::mt19937 random{7};
  for (int round = 0; round < 50; ++round) {
    PageMap map;
    std::vector<PageAge> ages;
    std::uint64_t at = 1 + random() % 100, pages = 0;
    for (int i = 0; i < 30; ++i) {
      Runs runs;
      const std::uint64_t first = at;
      for (std::uint64_t j = 0, count = 1 + random() % 300; j < count; ++j) {
        at += random() % 3;
        const std::uint64_t length = 1 + random() % 4;
        runs.push_back(run(at, at + length, random() % 2 == 0 ? Cause::heap_live : Cause::heap_retained,
                           random() % 2 == 0 ? kCall : kOther, 1 + random() % 16));
        ages.push_back({page(at), page(at + length), static_cast<double>(random() % 9)});
        at += length;
        pages += length;
      }
      map.mappings.push_back(one_mapping(first, at, runs).mappings[0]);
      at += random() % 50;
    }
    const std::size_t most = 40 + random() % 3000;
    finish_picture(map, ages, most);
    EXPECT_LE(map.entries(), most);
    std::uint64_t shown = map.pages_left_out;
    for (const PageMapMapping& mapping : map.mappings) {
      std::uint64_t before = mapping.start;
      for (const PageMapRun& each : mapping.runs) {
        EXPECT_GE(each.start, before);
        EXPECT_LT(each.start, each.end);
        EXPECT_LE(each.end, mapping.end);
        EXPECT_LE(each.pages, (each.end - each.start) / kPage);
        before = each.end;
        shown += each.pages;
      }
    }
    EXPECT_EQ(shown, pages);
    EXPECT_EQ(map.mappings.size() + map.mappings_left_out, 30U);
  }
}

TEST(FinishPicture, OfTooManyMappingsTheSmallestAreLeftOut) {
  PageMap map;
  for (std::uint64_t i = 0; i < 10; ++i)
    map.mappings.push_back(
        one_mapping(100 * i, 100 * i + 50, {run(100 * i, 100 * i + i + 1, Cause::stack)}).mappings[0]);
  finish_picture(map, {}, 4);
  ASSERT_EQ(map.mappings.size(), 4U);
  EXPECT_EQ(map.mappings[0].start, page(600));
  EXPECT_EQ(map.mappings_left_out, 6U);
  EXPECT_EQ(map.pages_left_out, 1U + 2 + 3 + 4 + 5 + 6);
}

}  // namespace
}  // namespace whyrss::page_map_test
