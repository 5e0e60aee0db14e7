// Who made pages resident, replayed: what samples stand for, how long they live, what a fork and a walk do to them.
#include "attribute/touched_pages.h"

#include <gtest/gtest.h>

#include "attribute/address_space.h"

namespace whyrss::touched_pages_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;  // a multiple of 2 MiB
constexpr auto kFirst = StackId{3}, kSecond = StackId{4}, kMapper = StackId{9};
constexpr std::uint32_t kPeriod = 61;

std::uint64_t page(std::uint64_t number) { return kBase + number * kPage; }

TouchSample sample(std::uint64_t number, std::uint64_t time_ns, StackId stack) {
  return {.page = page(number), .time_ns = time_ns, .weight = kPeriod, .stack = stack};
}

TouchedRange range(std::uint64_t from, std::uint64_t to, StackId stack) {
  return {.start = page(from), .end = page(to), .weight = kPeriod, .stack = stack};
}

using Ranges = std::vector<TouchedRange>;
using Runs = std::vector<ResidentRun>;

ResidentRun anonymous(std::uint64_t from, std::uint64_t to) {
  return {.start = page(from), .end = page(to), .exclusive = true};
}

// An address space with one mapping of 2048 pages, which the program made itself.
class TouchedPagesTest : public ::testing::Test {
 protected:
  TouchedPagesTest() { space_.map(page(0), 2048 * kPage, {Owner::program, kMapper}); }

  Ranges walk(std::uint64_t begin_ns, const Runs& runs) { return walk(space_, begin_ns, runs); }
  Ranges walk(AddressSpace& space, std::uint64_t begin_ns, const Runs& runs) const {
    return space.touched().observe(
        {.begin_ns = begin_ns, .vmas = vmas_, .runs = runs, .inherited = space.inheritance().ranges()});
  }

  AddressSpace space_;
  std::vector<Vma> vmas_{{.start = page(0), .end = page(2048), .path = {}, .writable = true}};
};

TEST_F(TouchedPagesTest, AnAnonymousFaultBringsInOnePage) {
  space_.touch({.page = page(5) + 17, .time_ns = 10, .weight = kPeriod, .stack = kFirst});
  EXPECT_EQ(walk(100, {anonymous(0, 20)}), (Ranges{range(5, 6, kFirst)}));
}

// A heap uses pages again: who touched them for another block has not used this one.
TEST_F(TouchedPagesTest, ABlockIsUsedByWhoTouchesItAfterItWasMade) {
  constexpr std::uint64_t kLater = 1'000'000'000;
  for (const std::uint64_t at : {5, 12, 30}) space_.touch(sample(at, 10, kFirst));
  space_.touch_by_kernel(page(13), kPage, 1, kFirst, 20);
  space_.touched().begin_block(page(10) + 16, 10 * kPage, kLater);
  space_.touch(sample(15, kLater - 1000, kSecond));  // by the allocator, before it said so
  space_.touch(sample(18, kLater + 1000, kSecond));
  const Ranges used{range(5, 6, kFirst), range(15, 16, kSecond), range(18, 19, kSecond), range(30, 31, kFirst)};
  EXPECT_EQ(walk(2 * kLater, {anonymous(0, 40)}), used);
  EXPECT_EQ(walk(3 * kLater, {anonymous(0, 40)}), used);
  // On its edges others' bytes lie too.
  space_.touched().begin_block(page(5) + 16, 100, 4 * kLater);
  EXPECT_EQ(walk(5 * kLater, {anonymous(0, 40)}), used);
}

TEST_F(TouchedPagesTest, AHugePageIsOneFault) {
  space_.touch(sample(700, 10, kFirst));
  Runs runs{anonymous(512, 1024)};
  runs.front().huge = true;
  EXPECT_EQ(walk(100, runs), (Ranges{range(512, 1024, kFirst)}));
  runs.front().huge = false;  // split meanwhile: it was one fault all the same
  EXPECT_EQ(walk(200, runs), (Ranges{range(512, 1024, kFirst)}));
}

TEST_F(TouchedPagesTest, SmallPagesThatBecameAHugeOneStaySmall) {
  space_.touch(sample(520, 10, kFirst));
  space_.touch(sample(581, 20, kSecond));
  space_.touch(sample(30, 30, kFirst));
  const Ranges small{range(30, 31, kFirst), range(520, 521, kFirst), range(581, 582, kSecond)};
  Runs runs{anonymous(0, 512), anonymous(512, 1024)};
  runs[1].huge = true;
  EXPECT_EQ(walk(100, runs), small);
  runs[0].huge = true;  // the kernel put it together after the first walk
  EXPECT_EQ(walk(200, runs), small);
}

TEST_F(TouchedPagesTest, AFileFaultBringsInWhatIsCachedAround) {
  vmas_ = {{.start = page(20), .end = page(60), .path = "/data", .backing = Backing::file}};
  space_.touch(sample(22, 10, kFirst));
  space_.touch(sample(40, 11, kFirst));
  space_.touch(sample(58, 12, kSecond));
  const auto cached = [](std::uint64_t from, std::uint64_t to, bool exclusive) {
    return ResidentRun{.start = page(from), .end = page(to), .file = true, .exclusive = exclusive};
  };
  const ResidentRun copy{.start = page(42), .end = page(43), .exclusive = true};
  EXPECT_EQ(
      walk(100, {cached(20, 24, true), cached(24, 36, false), cached(38, 42, false), copy, cached(43, 60, false)}),
      (Ranges{range(20, 32, kFirst), range(32, 42, kFirst), range(48, 60, kSecond)}));
}

TEST_F(TouchedPagesTest, WhatIsUnmappedOrGivenUpIsGone) {
  for (const std::uint64_t number : {1, 2, 3, 600}) space_.touch(sample(number, 10, kFirst));
  space_.unmap(page(1), kPage);
  space_.drop_pages(page(2), kPage);
  EXPECT_EQ(walk(100, {anonymous(0, 2), anonymous(3, 2048)}), (Ranges{range(3, 4, kFirst), range(600, 601, kFirst)}));
  space_.touch(sample(2, 110, kSecond));
  EXPECT_EQ(walk(200, {anonymous(0, 2048)}),
            (Ranges{range(2, 3, kSecond), range(3, 4, kFirst), range(600, 601, kFirst)}));
}

TEST_F(TouchedPagesTest, MovesWithItsMapping) {
  space_.touch(sample(1, 10, kFirst));
  space_.touch(sample(5, 11, kFirst));
  space_.remap(page(0), 4 * kPage, page(1000), 8 * kPage, kMapper);
  EXPECT_EQ(walk(100, {anonymous(4, 2048)}), (Ranges{range(5, 6, kFirst), range(1001, 1002, kFirst)}));
  space_.remap(page(1000), 8 * kPage, page(1000), 16 * kPage, kMapper);  // grew in place: nothing went
  space_.touch(sample(1001, 110, kSecond));
  EXPECT_EQ(walk(200, {anonymous(4, 2048)}), (Ranges{range(5, 6, kFirst), range(1001, 1002, kFirst)}));
}

TEST_F(TouchedPagesTest, AWalkSaysNothingAboutLaterFaults) {
  space_.touch(sample(1, 99, kFirst));
  space_.touch(sample(2, 100, kSecond));
  EXPECT_EQ(walk(100, {}), Ranges{});
  EXPECT_EQ(walk(200, {anonymous(0, 20)}), (Ranges{range(2, 3, kSecond)}));  // page 1 was found absent
}

TEST_F(TouchedPagesTest, AFaultOnAPageThatWasThereTouchedNothing) {
  space_.touch(sample(1, 10, kFirst));
  walk(100, {anonymous(0, 20)});
  space_.touch(sample(1, 110, kSecond));
  space_.touch(sample(2, 120, kSecond));
  EXPECT_EQ(walk(200, {anonymous(0, 20)}), (Ranges{range(1, 2, kFirst)}));
  EXPECT_TRUE(space_.touched().copy_candidates(page(0), page(2048), 0, 1000).empty());
}

TEST_F(TouchedPagesTest, WherePagesGoUnseenTheLastFaultCounts) {
  AddressSpace heap;  // nobody was seen to map it
  heap.touch(sample(1, 10, kFirst));
  walk(heap, 100, {anonymous(0, 20)});
  heap.touch(sample(1, 110, kSecond));
  EXPECT_EQ(walk(heap, 200, {anonymous(0, 20)}), (Ranges{range(1, 2, kSecond)}));
}

TEST_F(TouchedPagesTest, AWriteAfterTheZeroPageTakesItsPlace) {
  space_.touch(sample(1, 10, kFirst));
  space_.touch(sample(1, 20, kSecond));
  EXPECT_EQ(walk(100, {anonymous(0, 20)}), (Ranges{range(1, 2, kSecond)}));
}

TEST_F(TouchedPagesTest, AChildBeginsWithWhatItsParentTouched) {
  space_.touch(sample(1, 10, kFirst));
  space_.touch(sample(2, 10, kFirst));
  space_.touch(sample(900, 10, kFirst));  // not inherited: a page of a file, say
  AddressSpace child = space_.forked();
  space_.touched().note_fork(50);
  child.inherit(page(0), page(20));
  child.touch(sample(1500, 60, kSecond));
  child.touched().keep_inherited(child.inheritance().ranges(), 55);
  child.touch(sample(2, 70, kSecond));
  const auto copies = child.touched().copy_candidates(page(0), page(20), 0, 100);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies.front(), sample(2, 70, kSecond));
  const Runs runs{{.start = page(0), .end = page(2)},
                  anonymous(2, 3),
                  {.start = page(3), .end = page(20)},
                  {.start = page(900), .end = page(901), .exclusive = true},
                  anonymous(1500, 1501)};
  child.inheritance().keep({{page(0), page(2), false, true}, {page(2), page(3), true, true}});
  child.inheritance().settle(page(2), page(3), ForkClass::copied);
  EXPECT_EQ(walk(child, 100, runs), (Ranges{range(1, 2, kFirst), range(2, 3, kSecond), range(1500, 1501, kSecond)}));
  EXPECT_EQ(walk(100, {anonymous(0, 1024)}),
            (Ranges{range(1, 2, kFirst), range(2, 3, kFirst), range(900, 901, kFirst)}));
}

// Pages that no walk saw and no sample fell on before the fork, but that the child got.
TEST_F(TouchedPagesTest, AParentsWritesToWhatAChildInheritedAreCandidates) {
  walk(100, {});
  space_.touch(sample(3, 120, kFirst));
  space_.touched().note_fork(150);
  space_.touch(sample(4, 160, kSecond));  // before the child tells what it got
  space_.touched().note_inherited(page(0), page(10), 150);
  space_.touch(sample(5, 170, kSecond));
  space_.touch(sample(30, 170, kSecond));  // a first touch
  const auto candidates = [&] { return space_.touched().copy_candidates(page(0), page(2048), 0, 1000).size(); };
  EXPECT_EQ(candidates(), 2U);
  space_.unmap(page(6), kPage);
  space_.map(page(6), kPage, {Owner::program, kMapper});
  space_.touch(sample(6, 180, kSecond));
  EXPECT_EQ(candidates(), 2U);
  EXPECT_EQ(walk(200, {anonymous(0, 10), anonymous(30, 31)}),
            (Ranges{range(3, 4, kFirst), range(6, 7, kSecond), range(30, 31, kSecond)}));
  space_.touch(sample(7, 210, kSecond));  // the walk showed that nobody shares it any more
  EXPECT_EQ(candidates(), 2U);
}

TEST_F(TouchedPagesTest, WhoTouchedTheOriginalSaysNothingAboutACopy) {
  space_.touch(sample(1, 10, kFirst));
  space_.touch(sample(2, 10, kFirst));
  AddressSpace child = space_.forked();
  child.inherit(page(0), page(20));
  child.touched().keep_inherited(child.inheritance().ranges(), 55);
  child.inheritance().keep({{page(0), page(2), false, true}, {page(2), page(20), true, true}});
  child.inheritance().settle(page(2), page(20), ForkClass::copied);  // and none of its writes was sampled
  const Runs runs{{.start = page(0), .end = page(2)}, anonymous(2, 20)};
  EXPECT_EQ(walk(child, 100, runs), (Ranges{range(1, 2, kFirst)}));
}

TEST_F(TouchedPagesTest, AParentsWritesAfterAForkAreCandidatesUntilTheThirdWalk) {
  space_.touch(sample(1, 10, kFirst));
  walk(100, {anonymous(0, 20)});
  space_.touched().note_fork(150);
  space_.touch(sample(1, 160, kSecond));
  space_.touch(sample(7, 160, kSecond));   // not sampled before, but the walk saw it
  space_.touch(sample(30, 160, kSecond));  // a first touch
  const auto candidates = [&](std::uint64_t from_ns, std::uint64_t to_ns) {
    return space_.touched().copy_candidates(page(0), page(2048), from_ns, to_ns).size();
  };
  EXPECT_EQ(candidates(100, 200), 2U);
  EXPECT_EQ(candidates(161, 200), 0U);
  const ResidentRun shared{.start = page(8), .end = page(12)};
  EXPECT_EQ(walk(200, {anonymous(0, 8), shared, anonymous(30, 31)}),
            (Ranges{range(1, 2, kFirst), range(30, 31, kSecond)}));
  EXPECT_EQ(candidates(100, 200), 2U);
  space_.touch(sample(9, 210, kSecond));  // mapped by a relative at the last walk
  space_.touch(sample(30, 210, kFirst));  // its own
  EXPECT_EQ(candidates(200, 300), 1U);
  walk(300, {anonymous(0, 31)});
  EXPECT_EQ(candidates(100, 200), 0U);
  EXPECT_EQ(candidates(200, 300), 1U);
}

TEST_F(TouchedPagesTest, AWriteToAPageOfAFileIsWhoTouchedTheCopy) {
  vmas_ = {{.start = page(0), .end = page(64), .path = "/data", .backing = Backing::file, .writable = true}};
  const ResidentRun cached{.start = page(0), .end = page(16), .file = true};
  space_.touch(sample(3, 10, kFirst));
  EXPECT_EQ(walk(100, {cached}), (Ranges{range(0, 16, kFirst)}));
  space_.touch(sample(3, 110, kSecond));
  space_.touch(sample(8, 110, kSecond));  // no copy: a shared mapping's first write
  EXPECT_EQ(walk(200, {{.start = page(0), .end = page(3), .file = true},
                       anonymous(3, 4),
                       {.start = page(4), .end = page(16), .file = true}}),
            (Ranges{range(3, 4, kSecond)}));
}

TEST_F(TouchedPagesTest, TheKernelsFaultsAreCounted) {
  space_.touch_by_kernel(page(0) + 100, 8 * kPage - 200, 8, kFirst, 10);
  space_.touch_by_kernel(page(16), 8 * kPage, 6, kSecond, 20);
  space_.touch_by_kernel(page(6), 4 * kPage, 1, kSecond, 30);  // most of it was there
  const auto part = [](std::uint64_t from, std::uint64_t to, double weight, StackId stack) {
    return TouchedRange{.start = page(from), .end = page(to), .weight = weight, .stack = stack, .by_kernel = true};
  };
  // Pages 20 to 24 are not resident: 6 faults fill the four pages that are.
  EXPECT_EQ(walk(100, {anonymous(0, 20)}),
            (Ranges{part(0, 8, 1, kFirst), part(8, 10, 0.25, kSecond), part(16, 20, 1, kSecond)}));
  space_.drop_pages(page(2), 3 * kPage);
  EXPECT_EQ(walk(200, {anonymous(0, 20)}), (Ranges{part(0, 2, 1, kFirst), part(5, 8, 1, kFirst),
                                                   part(8, 10, 0.25, kSecond), part(16, 20, 1, kSecond)}));
}

TEST_F(TouchedPagesTest, TheKernelBringsInHugePagesAndCachedOnesTogether) {
  Runs huge{anonymous(512, 1024)};
  huge.front().huge = true;
  space_.touch_by_kernel(page(512), 512 * kPage, 1, kFirst, 10);
  Ranges touched = walk(100, huge);
  ASSERT_EQ(touched.size(), 1U);
  EXPECT_EQ(touched.front().weight, 1);
  space_.touch_by_kernel(page(0), 64 * kPage, 2, kSecond, 110);
  touched = walk(200, {{.start = page(0), .end = page(64), .file = true}, huge.front()});
  ASSERT_EQ(touched.size(), 2U);
  EXPECT_EQ(touched.front().weight, 0.5);
}

TEST_F(TouchedPagesTest, AFailedReallocKeepsWhoTouched) {
  AddressSpace heap(kPage, true);
  heap.allocate(page(0) + 16, 200 * kPage - 16, kMapper);  // a mapping of glibc's own
  heap.touch(sample(5, 10, kFirst));
  heap.release(page(0) + 16, 1);
  EXPECT_EQ(walk(heap, 5, {anonymous(0, 200)}), Ranges{});
  heap.undo_release(page(0) + 16, 1);
  EXPECT_EQ(walk(heap, 5, {anonymous(0, 200)}), (Ranges{range(5, 6, kFirst)}));
}

TEST_F(TouchedPagesTest, KeepsOneSampleForAPageHoweverManyCome) {
  TouchSamples samples;
  for (std::uint64_t i = 0; i < 100000; ++i) samples.put(sample(i % 600, i, kFirst));
  std::size_t count = 0;
  samples.visit_within(page(0), page(2048), [&](const TouchSample&) { ++count; });
  EXPECT_EQ(count, 600U);
  samples.erase(page(100), page(550));
  EXPECT_EQ(samples.find(page(549)), nullptr);
  EXPECT_NE(samples.find(page(550)), nullptr);
}

}  // namespace
}  // namespace whyrss::touched_pages_test
