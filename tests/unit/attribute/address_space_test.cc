// Replay of one address space, and what becomes of inherited pages from walk to walk.
#include "attribute/address_space.h"

#include <gtest/gtest.h>

namespace whyrss::address_space_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr auto kCall = StackId{3};
constexpr auto kOther = StackId{4};
constexpr std::uint32_t kTid = 1;

std::uint64_t page(std::uint64_t number) { return kBase + number * kPage; }
using Owned = std::vector<OwnedRange>;
using Forked = std::vector<ForkRange>;

TEST(AddressSpace, CutsUnmappedPartsOutAndBlocksIntoMappings) {
  AddressSpace space;
  space.map(page(0), 10 * kPage - 5, {Owner::program, kCall});
  space.unmap(page(4), kPage);
  space.allocate(page(6) + 8, 100, kOther);
  EXPECT_EQ(space.owned(), (Owned{{page(0), page(4), Owner::program, kCall},
                                  {page(5), page(6) + 8, Owner::allocator, kCall},
                                  {page(6) + 8, page(6) + 108, Owner::block, kOther},
                                  {page(6) + 108, page(10), Owner::allocator, kCall}}));
  space.map(page(5), 2 * kPage, {Owner::program, kOther});
  EXPECT_EQ(space.owned(), (Owned{{page(0), page(4), Owner::program, kCall},
                                  {page(5), page(7), Owner::program, kOther},
                                  {page(7), page(10), Owner::allocator, kCall}}));
  EXPECT_TRUE(space.held_blocks().empty());
}

TEST(AddressSpace, MappingOfALibrarysBlockIsTheLibrarysForGood) {
  AddressSpace space;
  space.map(page(0), 10 * kPage, {Owner::program, kCall});
  space.map(page(20), kPage, {Owner::program, kCall});
  space.allocate(page(1), kPage, kOther, Owner::library);
  space.release(page(1), kTid);
  space.allocate(page(15), kPage, kOther, Owner::library);
  space.release(page(15), kTid);
  EXPECT_EQ(space.owned(),
            (Owned{{page(0), page(10), Owner::library, kCall}, {page(20), page(21), Owner::program, kCall}}));
}

TEST(AddressSpace, WhatIsLeftOfABlockStaysLive) {
  AddressSpace space(kPage, true);
  space.allocate(page(0) + 16, 40 * kPage - 16, kCall);
  space.map(page(2), 2 * kPage, {Owner::program, kOther});
  space.unmap(page(6), kPage);
  space.map(page(3), 2 * kPage, {Owner::program, kOther});
  const Owned expected{{page(0) + 16, page(2), Owner::block, kCall},
                       {page(2), page(5), Owner::program, kOther},
                       {page(5), page(6), Owner::block, kCall},
                       {page(7), page(40), Owner::block, kCall}};
  EXPECT_EQ(space.owned(), expected);
  EXPECT_EQ(space.forked().owned(), expected);
  space.allocate(page(2) + 16, 100, kOther);  // somebody's own allocator
  EXPECT_EQ(space.owned().size(), expected.size() + 2);
  space.release(page(2) + 16, kTid);
  EXPECT_EQ(space.block_stack(page(1)), kCall);
  EXPECT_EQ(space.block_stack(page(3)), kEmptyStack);
  EXPECT_EQ(space.block_stack(page(9)), kCall);
  space.release(page(0) + 16, kTid);  // glibc unmaps all of it
  EXPECT_TRUE(space.owned().empty());
  EXPECT_TRUE(space.held_blocks().empty());
}

TEST(AddressSpace, ABlockWhoseHeadWasUnmappedCanBeReleased) {
  AddressSpace space;
  space.map(page(0), 10 * kPage, {Owner::allocator, kOther});
  space.allocate(page(1), 4 * kPage, kCall);
  space.unmap(page(1), 2 * kPage);
  EXPECT_EQ(space.owned(), (Owned{{page(0), page(1), Owner::allocator, kOther},
                                  {page(3), page(5), Owner::block, kCall},
                                  {page(5), page(10), Owner::allocator, kOther}}));
  space.release(page(1), kTid);
  EXPECT_EQ(space.owned(),
            (Owned{{page(0), page(1), Owner::allocator, kOther}, {page(3), page(10), Owner::allocator, kOther}}));
  space.allocate(page(1), 4 * kPage, kCall);
  space.unmap(page(1), 4 * kPage);  // all of it: nothing is left to be released
  space.allocate(page(2), kPage, kOther);
  EXPECT_EQ(space.owned(), (Owned{{page(0), page(1), Owner::allocator, kOther},
                                  {page(2), page(3), Owner::block, kOther},
                                  {page(5), page(10), Owner::allocator, kOther}}));
}

TEST(AddressSpace, AFailedReallocBringsTheBlockBack) {
  AddressSpace space;
  space.allocate(page(1), 100, kCall);
  space.release(page(1), kTid);
  EXPECT_TRUE(space.owned().empty());
  EXPECT_EQ(space.held_blocks(), (std::vector<HeldRange>{{page(1), page(2), kCall}}));  // once an allocator's, always
  space.undo_release(page(1), kTid + 1);                                                // another thread's
  EXPECT_TRUE(space.owned().empty());
  space.undo_release(page(1), kTid);
  EXPECT_EQ(space.owned(), (Owned{{page(1), page(1) + 100, Owner::block, kCall}}));
}

TEST(AddressSpace, RemapMovesOwnersAndBlamesGrowthOnItsOwnCall) {
  AddressSpace space;
  space.map(page(0), 2 * kPage, {Owner::program, kCall});
  space.inherit(page(0), page(1));
  space.remap(page(0), 2 * kPage, page(20), 5 * kPage, kOther);
  EXPECT_EQ(space.owned(),
            (Owned{{page(20), page(22), Owner::program, kCall}, {page(22), page(25), Owner::program, kOther}}));
  EXPECT_EQ(space.inheritance().ranges(), (Forked{{page(20), page(21), ForkClass::shared}}));
  space.remap(page(20), 5 * kPage, page(20), kPage, kOther);
  EXPECT_EQ(space.owned(), (Owned{{page(20), page(21), Owner::program, kCall}}));
}

TEST(AddressSpace, TheBreakGrowsAndShrinks) {
  AddressSpace space;
  space.move_break(page(0), page(8), {Owner::program, kCall});
  space.move_break(page(8), page(3), {Owner::program, kCall});
  EXPECT_EQ(space.owned(), (Owned{{page(0), page(3), Owner::program, kCall}}));
}

TEST(AddressSpace, AThreadStackIsTheMappingUpToItsControlBlock) {
  AddressSpace space;
  space.start_thread(page(7), page(8) + 64, kCall);
  const std::vector<Vma> vmas{{.start = page(1), .end = page(40), .path = {}, .writable = true}};
  const auto stacks = space.thread_stacks(vmas);
  ASSERT_EQ(stacks.size(), 1U);
  EXPECT_EQ(stacks[0].start, page(1));
  EXPECT_EQ(stacks[0].end, page(10));
  EXPECT_EQ(stacks[0].stack, kCall);
  space.unmap(page(1), 9 * kPage);
  EXPECT_TRUE(space.thread_stacks(vmas).empty());
}

TEST(AddressSpace, AChildKeepsWhatTheParentOwnedAtTheFork) {
  AddressSpace parent;
  parent.allocate(page(1), 5000, kCall);
  AddressSpace child = parent.forked();
  parent.release(page(1), kTid);
  child.release(page(1), kTid);
  EXPECT_EQ(child.ancestor_owned(), (Owned{{page(1), page(1) + 5000, Owner::block, kCall}}));
  EXPECT_TRUE(child.owned().empty());
}

TEST(AddressSpace, FreeingABlockThatGlibcMappedGivesItsInheritedPagesBack) {
  AddressSpace child(kPage, true);
  child.allocate(page(0) + 16, 512 * 1024, kCall);
  child.allocate(page(500) + 16, 512 * 1024, kCall);
  child.see_heap({page(500), page(900)});
  child.inherit(page(0), page(129));
  child.inherit(page(500), page(510));
  child.release(page(0) + 16, kTid);
  child.release(page(500) + 16, kTid);
  EXPECT_EQ(child.inheritance().ranges(), (Forked{{page(500), page(510), ForkClass::shared}}));
}

TEST(AddressSpace, WhatIsGivenBackDuringAWalkWaitsForItsEnd) {
  AddressSpace space(kPage, true);
  space.map(page(0), 20 * kPage, {Owner::program, kCall});
  space.allocate(page(100) + 16, 512 * 1024, kCall);
  space.begin_walk();
  space.unmap(page(0), 5 * kPage);
  space.unmap(page(4), 6 * kPage);
  space.unmap(page(15), 5 * kPage);
  space.release(page(100) + 16, kTid);
  EXPECT_EQ(space.owned(), (Owned{{page(0), page(20), Owner::program, kCall},
                                  {page(100) + 16, page(100) + 16 + 512 * 1024, Owner::block, kCall}}));
  EXPECT_TRUE(space.gives_back(page(9), kPage));
  EXPECT_FALSE(space.gives_back(page(12), kPage));
  // Taken for something else, with what was given back before and overlaps it.
  space.map(page(9), kPage, {Owner::program, kOther});
  EXPECT_EQ(space.owned(), (Owned{{page(9), page(10), Owner::program, kOther},
                                  {page(10), page(20), Owner::program, kCall},
                                  {page(100) + 16, page(100) + 16 + 512 * 1024, Owner::block, kCall}}));
  space.final_walk();
  EXPECT_EQ(space.owned(),
            (Owned{{page(9), page(10), Owner::program, kOther}, {page(10), page(15), Owner::program, kCall}}));
  EXPECT_TRUE(space.held_blocks().empty());
  space.unmap(page(10), kPage);  // at once again
  EXPECT_EQ(space.owned(),
            (Owned{{page(9), page(10), Owner::program, kOther}, {page(11), page(15), Owner::program, kCall}}));
}

TEST(AddressSpace, RelativesKnowAtOnceWhatIsGivenBackDuringALook) {
  AddressSpace child;
  child.follow_dropped(true);
  child.inherit(page(0), page(8));
  child.begin_walk();
  child.unmap(page(0), 2 * kPage);
  child.drop_pages_after_walk(page(4), kPage);
  const std::vector<Range> dropped{{page(0), page(2)}, {page(4), page(5)}};
  EXPECT_EQ(child.take_dropped(), dropped);
  EXPECT_EQ(child.inheritance().ranges(), (Forked{{page(0), page(8), ForkClass::shared}}));
  child.final_walk();
  EXPECT_TRUE(child.take_dropped().empty());
  EXPECT_EQ(child.inheritance().ranges(),
            (Forked{{page(2), page(4), ForkClass::shared}, {page(5), page(8), ForkClass::shared}}));
}

TEST(AddressSpace, AProgramThatGivesBackWithoutEndIsReportedAtOnce) {
  AddressSpace space;
  space.map(page(0), 10000 * kPage, {Owner::program, kCall});
  space.begin_walk();
  for (std::uint64_t i = 0; i < 5000; ++i) space.unmap(page(2 * i), kPage);
  EXPECT_EQ(space.owned().front(), (OwnedRange{page(1), page(2), Owner::program, kCall}));
  space.final_walk();
  EXPECT_EQ(space.owned().size(), 5000U);
}

TEST(AddressSpace, HugeRangesDoNotWrapAround) {
  AddressSpace space;
  space.map(~0ULL - 10, ~0ULL, {Owner::program, kCall});
  space.allocate(~0ULL - 3, ~0ULL, kCall);
  space.unmap(5, ~0ULL);
  space.remap(~0ULL - 100, ~0ULL, 3, ~0ULL, kCall);
  space.inherit(0, ~0ULL);
  space.drop_pages(~0ULL, ~0ULL);
  std::uint64_t last = 0;
  for (const OwnedRange& range : space.owned()) {
    EXPECT_GE(range.start, last);
    EXPECT_GT(range.end, range.start);
    last = range.end;
  }
}

TEST(Inheritance, ACopyStaysACopyAndAPageThatWasGivenBackIsNew) {
  Inheritance inheritance;
  inheritance.add(page(0), page(4));
  inheritance.settle(page(0), page(2), ForkClass::copied);
  inheritance.settle(page(1), page(3), ForkClass::sole);
  inheritance.keep({{page(0), page(1), true, true}, {page(1), page(3), false, false}, {page(3), page(4), true, true}});
  EXPECT_EQ(inheritance.ranges(), (Forked{{page(0), page(2), ForkClass::copied},
                                          {page(2), page(3), ForkClass::sole},
                                          {page(3), page(4), ForkClass::shared}}));
  inheritance.keep({{page(0), page(3), false, true}});
  inheritance.settle(page(3), page(4), ForkClass::copied);  // other memory by now
  EXPECT_EQ(inheritance.ranges(), (Forked{{page(0), page(2), ForkClass::copied}, {page(2), page(3), ForkClass::sole}}));
}

}  // namespace
}  // namespace whyrss::address_space_test
