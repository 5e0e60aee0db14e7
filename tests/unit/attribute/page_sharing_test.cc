// Who copied, who was left alone, who wrote without a copy: families written down page by page.
#include "attribute/page_sharing.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace whyrss::page_sharing_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint64_t kMany = 1000;
std::uint64_t page(std::uint64_t number) { return kBase + number * kPage; }

// Pages [from, to) in a walk: S shared, X exclusive; s, x the same with their mark still there; H, h mapped 2 MiB at a
// time.
AnonymousRun run(char kind, std::uint64_t from, std::uint64_t to) {
  return {.start = page(from),
          .end = page(to),
          .exclusive = kind == 'x' || kind == 'X' || kind == 'H' || kind == 'h',
          .resident = true,
          .marked = kind == 's' || kind == 'x' || kind == 'h',
          .huge = kind == 'H' || kind == 'h'};
}
using Runs = std::vector<AnonymousRun>;

// Pages by member and fate: "1 copied" -> 3.
using Sums = std::map<std::string, std::uint64_t>;
Sums sums(const std::vector<std::vector<TransitionRange>>& transitions) {
  static const char* const kNames[] = {"copied", "by relatives", "left", "reused"};
  Sums result;
  for (std::size_t member = 0; member < transitions.size(); ++member)
    for (const TransitionRange& range : transitions[member])
      result[std::to_string(member) + " " + kNames[static_cast<int>(range.transition)]] +=
          (range.end - range.start) / kPage;
  return result;
}

// A parent (0) with `children` children, forked at 1 with pages 0 to 9 resident.
struct Family {
  explicit Family(PageSharing::Member children = 1, bool marked = false) {
    sharing.add(std::nullopt, 0);
    for (PageSharing::Member child = 1; child <= children; ++child) fork(0, 1);
    if (marked)
      for (PageSharing::Member member = 0; member <= children; ++member) sharing.mark(member, page(0), page(10));
  }
  PageSharing::Member fork(PageSharing::Member parent, double time_s) {
    const PageSharing::Member child = sharing.add(parent, time_s);
    sharing.share(child, page(0), page(10), time_s);
    return child;
  }
  Sums walk(double time_s, const std::map<PageSharing::Member, Runs>& seen, std::uint64_t most_copies = kMany) {
    std::vector<PageSharing::Walk> walks;
    for (const auto& [member, runs] : seen) walks.push_back({member, &runs, most_copies});
    return sums(sharing.observe(walks, time_s));
  }
  PageSharing sharing{kPage};
};

TEST(PageSharing, WhoWroteIsKnownByMarks) {
  Family family(1, true);
  EXPECT_EQ(family.walk(2, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}}), Sums{});
  // The child writes 0 to 3, the parent 4 and 5.
  EXPECT_EQ(family.walk(3, {{0, {run('x', 0, 4), run('X', 4, 6), run('s', 6, 10)}},
                            {1, {run('X', 0, 4), run('x', 4, 6), run('s', 6, 10)}}}),
            (Sums{{"1 copied", 4}, {"0 by relatives", 4}, {"0 copied", 2}, {"1 by relatives", 2}}));
  // Then each writes what has become its own.
  EXPECT_EQ(family.walk(4, {{0, {run('X', 0, 1), run('x', 1, 4), run('X', 4, 6), run('s', 6, 10)}},
                            {1, {run('X', 0, 6), run('s', 6, 10)}}}),
            (Sums{{"0 reused", 1}, {"1 reused", 2}}));
  family.sharing.leave(1, 5);
  EXPECT_EQ(family.walk(6, {{0, {run('X', 0, 1), run('x', 1, 4), run('X', 4, 6), run('x', 6, 10)}}}),
            (Sums{{"0 left", 4}}));
  EXPECT_EQ(family.walk(7, {{0, {run('X', 0, 10)}}}), (Sums{{"0 reused", 3 + 4}}));
  EXPECT_TRUE(family.sharing.holds_nothing());
}

// Neither the pages before the one that is written at each walk nor those behind it forget who has them.
TEST(PageSharing, WhatIsNotWrittenStaysAsItWas) {
  Family family(1, true);
  Runs parent{run('s', 0, 10)};
  for (std::uint64_t written = 3; written < 7; ++written) {
    EXPECT_EQ(family.walk(static_cast<double>(written), {{0, parent}, {1, parent}}), (Sums{}));
    parent = {run('s', 0, 3), run('x', 3, written + 1), run('s', written + 1, 10)};
    const Runs child{run('s', 0, 3), run('X', 3, written + 1), run('s', written + 1, 10)};
    EXPECT_EQ(family.walk(static_cast<double>(written) + 0.5, {{0, parent}, {1, child}}),
              (Sums{{"1 copied", 1}, {"0 by relatives", 1}}))
        << written;
  }
  family.sharing.leave(1, 8);
  EXPECT_EQ(family.walk(9, {{0, {run('x', 0, 10)}}}), (Sums{{"0 left", 6}}));
}

TEST(PageSharing, BothWroteBetweenTwoWalksOneOfThemCopied) {
  Family family(1, true);
  EXPECT_EQ(family.walk(2, {{0, {run('X', 0, 10)}}, {1, {run('X', 0, 10)}}}),
            (Sums{{"0 reused", 10}, {"1 copied", 10}}));
}

TEST(PageSharing, OfTwoWritersTheFirstCopied) {
  const Runs written{run('X', 0, 10)};
  for (const bool child_first : {true, false}) {
    Family family(1, true);
    const Sums expected =
        child_first ? Sums{{"0 reused", 10}, {"1 copied", 10}} : Sums{{"1 reused", 10}, {"0 copied", 10}};
    EXPECT_EQ(
        sums(family.sharing.observe({{0, &written, kMany, 1.5}, {1, &written, kMany, child_first ? 1.2 : 1.8}}, 2)),
        expected);
  }
}

// The parent is walked last, when it is alone: its children may have written meanwhile.
TEST(PageSharing, WhoIsAloneAfterTheWalksAtTheOthersIsJudgedByTheNextOnes) {
  const Runs unwritten{run('s', 0, 10)}, alone{run('X', 0, 10)};
  for (const bool children_wrote : {true, false}) {
    Family family(2);
    for (const PageSharing::Member child : {1, 2}) family.sharing.mark(child, page(0), page(10));
    EXPECT_EQ(
        sums(family.sharing.observe(
            {{1, &unwritten, kMany, 1.9, 2.0}, {2, &unwritten, kMany, 1.9, 2.1}, {0, &alone, kMany, 1.9, 2.2}}, 2)),
        Sums{});
    const Runs& then = children_wrote ? alone : unwritten;
    const Sums expected =
        children_wrote ? Sums{{"1 copied", 10}, {"2 copied", 10}, {"0 by relatives", 10}} : Sums{{"0 copied", 10}};
    EXPECT_EQ(family.walk(3, {{1, then}, {2, then}}), expected);
  }
  Family family(2);  // walked first, it copied
  EXPECT_EQ(sums(family.sharing.observe(
                {{0, &alone, kMany, 1.9, 2.0}, {1, &unwritten, kMany, 1.9, 2.1}, {2, &unwritten, kMany, 1.9, 2.2}}, 2)),
            (Sums{{"0 copied", 10}}));
}

TEST(PageSharing, AWriterCopiesUntilTheOtherHasLeft) {
  Family late(1, true), early(1, true);
  for (Family* family : {&late, &early})
    EXPECT_EQ(family->walk(2, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}}), Sums{});
  late.sharing.leave(1, 9);
  EXPECT_EQ(late.walk(10, {{0, {run('X', 0, 10)}}}), (Sums{{"0 copied", 10}}));
  // The child was walked in its last moment, and shared the pages then.
  EXPECT_EQ(early.walk(3, {{1, {run('s', 0, 10)}}}), Sums{});
  early.sharing.leave(1, 3.1);
  EXPECT_EQ(early.walk(10, {{0, {run('X', 0, 10)}}}), (Sums{{"0 reused", 10}}));
}

TEST(PageSharing, TheLastWalkOfALeaverTellsThatTheOtherCopied) {
  Family family(1, true);
  EXPECT_EQ(family.walk(3, {{1, {run('x', 0, 4), run('s', 4, 10)}}}), Sums{});  // the parent was not walked
  family.sharing.leave(1, 3.1);
  EXPECT_EQ(family.walk(4, {{0, {run('X', 0, 4), run('x', 4, 10)}}}),
            (Sums{{"0 copied", 4}, {"0 left", 6}, {"1 by relatives", 4}}));
}

TEST(PageSharing, WhoWasKilledCopiedWhatItsFaultsSay) {
  Family family(2, true);
  EXPECT_EQ(family.walk(2, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}, {2, {run('s', 0, 10)}}}), Sums{});
  EXPECT_EQ(sums(family.sharing.copy(1, 4, page(7))), (Sums{{"1 copied", 4}}));  // 7 to 9, 0
  EXPECT_EQ(sums(family.sharing.copy(1, 2, page(7))), (Sums{{"1 copied", 2}}));  // 1, 2: those it has already
  family.sharing.leave(1, 3);
  EXPECT_EQ(sums(family.sharing.copy(2, 4, page(0))), (Sums{{"2 copied", 4}, {"0 by relatives", 4}}));
  family.sharing.leave(2, 4);
  EXPECT_TRUE(family.sharing.has_left(2));
  EXPECT_EQ(sums(family.sharing.copy(2, 4, page(0))), Sums{});  // it has left
  EXPECT_EQ(family.walk(5, {{0, {run('x', 0, 10)}}}), (Sums{{"0 left", 6}}));
}

// Its parent was walked after it, and was alone with some of what it copied then.
TEST(PageSharing, WhoWasKilledCopiedWhatAnotherOneWasFoundAloneWith) {
  Family family(1, true);
  const Runs first{run('X', 0, 3), run('s', 3, 10)}, alone{run('x', 0, 6), run('s', 6, 10)};
  EXPECT_EQ(sums(family.sharing.observe({{1, &first, kMany, 1.9, 2.0}, {0, &alone, kMany, 1.9, 2.1}}, 2)),
            (Sums{{"1 copied", 3}, {"0 by relatives", 3}}));
  EXPECT_EQ(sums(family.sharing.copy(1, 5, page(2))), (Sums{{"1 copied", 5}, {"0 by relatives", 5}}));  // 3 to 7
  family.sharing.leave(1, 3);
  EXPECT_EQ(family.walk(4, {{0, {run('x', 0, 10)}}}), (Sums{{"0 left", 2}}));
}

TEST(PageSharing, WhoWasKilledAloneCopiedNothing) {
  Family family(1, true);
  EXPECT_EQ(family.walk(2, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}}), Sums{});
  family.sharing.leave(0, 3);
  EXPECT_EQ(sums(family.sharing.copy(1, 10, 0)), Sums{});
}

TEST(PageSharing, WithoutMarksChildrenCopyWhatTheirFaultsAllow) {
  Family family;
  EXPECT_EQ(family.walk(2, {{0, {run('S', 0, 10)}}, {1, {run('S', 0, 10)}}}), Sums{});
  EXPECT_EQ(family.walk(3, {{0, {run('X', 0, 4), run('S', 4, 10)}}, {1, {run('X', 0, 4), run('S', 4, 10)}}}),
            (Sums{{"1 copied", 4}, {"0 by relatives", 4}}));
  EXPECT_EQ(family.walk(4, {{0, {run('X', 0, 10)}}, {1, {run('X', 0, 10)}}}, 4),
            (Sums{{"1 copied", 4}, {"0 by relatives", 4}, {"0 copied", 2}, {"1 by relatives", 2}}));
}

TEST(PageSharing, WithoutMarksAnEndOfTheOtherOwnerIsNoCopy) {
  Family family;
  family.sharing.leave(0, 2);
  EXPECT_EQ(family.walk(3, {{1, {run('X', 0, 10)}}}), (Sums{{"1 left", 10}}));
  EXPECT_EQ(family.walk(4, {{1, {run('X', 0, 10)}}}), Sums{});  // writes without copies
}

TEST(PageSharing, OfThreeTheOneAloneCopied) {
  for (const bool marked : {false, true}) {
    Family family(2, marked);
    EXPECT_EQ(family.walk(2, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}, {2, {run('X', 0, 3), run('s', 3, 10)}}}),
              (Sums{{"2 copied", 3}}));
    // Now the first child too: the parent stays behind alone.
    EXPECT_EQ(family.walk(3, {{0, {run('x', 0, 3), run('s', 3, 10)}},
                              {1, {run('X', 0, 3), run('s', 3, 10)}},
                              {2, {run('X', 0, 3), run('s', 3, 10)}}}),
              (Sums{{"1 copied", 3}, {"0 by relatives", 3}}));
  }
}

// The parent's look comes first, and may not be of a copy; that the child has not written is known when it is looked
// at.
TEST(PageSharing, WhoSeemedToBeLeftAloneCopiedWhenTheOtherDidNotWrite) {
  for (const char kind : {'x', 'h'}) {
    Family family;
    family.sharing.mark(1, page(0), page(10));
    EXPECT_EQ(family.walk(2, {{0, {run('X', 0, 4), run('S', 4, 10)}}}, 0), Sums{});
    EXPECT_EQ(family.walk(3, {{1, {run(kind, 0, 4), run('s', 4, 10)}}}),
              (Sums{{"0 copied", 4}, {"1 by relatives", 4}}));
    EXPECT_EQ(family.walk(4, {{1, {run('X', 0, 4), run('s', 4, 10)}}}), (Sums{{"1 reused", 4}}));
  }
}

TEST(PageSharing, AForkDoesNotForgetWhoWasLeftBefore) {
  Family family;
  EXPECT_EQ(family.walk(2, {{0, {run('X', 0, 10)}}}, 0), Sums{});  // that the child has ended is heard later
  family.fork(0, 2.5);
  family.sharing.leave(1, 2.6);
  EXPECT_EQ(family.walk(3, {{0, {run('S', 0, 10)}}, {2, {run('S', 0, 10)}}}), (Sums{{"0 left", 10}}));
}

// The elder child is alone, as the parent copied before it forked the younger one; or it copied, where it had the
// faults.
TEST(PageSharing, WithoutMarksAParentThatCopiedSharesWithItsNextChild) {
  for (const bool elder_copied : {false, true}) {
    Family family;
    EXPECT_EQ(family.walk(1.5, {{0, {run('S', 0, 10)}}, {1, {run('S', 0, 10)}}}), Sums{});
    EXPECT_EQ(family.fork(0, 2), 2U);
    const std::map<PageSharing::Member, Runs> seen{
        {0, {run('S', 0, 10)}}, {1, {run('X', 0, 4), run('S', 4, 10)}}, {2, {run('S', 0, 10)}}};
    EXPECT_EQ(family.walk(3, seen, elder_copied ? kMany : 0),
              (elder_copied ? Sums{{"1 copied", 4}} : Sums{{"0 copied", 4}, {"1 by relatives", 4}}));
    family.sharing.leave(2, 3.5);
    EXPECT_EQ(family.walk(4, {{0, {run('X', 0, 4), run('S', 4, 10)}}}), (Sums{{"0 left", 4}}));
  }
}

// The same where writes are tracked: marks that were made after the copy say nothing of it. The elder child, whose
// first walk came too late for marks, may have copied one page by its faults.
TEST(PageSharing, AParentThatCopiedSharesWithItsNextChildUnderMarksMadeSince) {
  enum Order { together, elder_first, younger_before_parent };
  for (const Order order : {together, elder_first, younger_before_parent}) {
    Family family;
    EXPECT_EQ(family.fork(0, 2), 2U);
    const Runs parent{run('S', 0, 4), run('s', 4, 10)}, elder{run('X', 0, 4), run('S', 4, 10)},
        younger{run('S', 0, 10)};
    family.sharing.mark(0, page(4), page(10));
    if (order == together) {
      EXPECT_EQ(family.walk(3, {{0, parent}, {1, elder}}, 1),
                (Sums{{"0 copied", 3}, {"1 by relatives", 3}, {"1 copied", 1}}));
    } else {
      EXPECT_EQ(family.walk(3, {{1, elder}}, 0), Sums{});
      family.sharing.mark(1, page(0), page(10));
      const auto sums = order == elder_first ? family.walk(4, {{0, parent}}) : family.walk(4, {{2, younger}});
      EXPECT_EQ(sums, (Sums{{"0 copied", 4}, {"1 by relatives", 4}}));
    }
    family.sharing.mark(0, page(0), page(10));
    family.sharing.mark(2, page(0), page(10));
    EXPECT_EQ(family.walk(5, {{0, {run('x', 0, 2), run('s', 2, 10)}}, {2, {run('X', 0, 2), run('s', 2, 10)}}}),
              (Sums{{"2 copied", 2}, {"0 by relatives", 2}}));
  }
}

// The same, and the parent has copied once more since: all three have a page of their own, two of them the parent's.
// It forks whenever it is walked, and what it showed then is no walk.
TEST(PageSharing, WhatWasCopiedUnseenIsNotCopiedAgain) {
  Family family(1, true);
  EXPECT_EQ(family.walk(2, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}}), Sums{});
  const PageSharing::Member second = family.fork(0, 2.5);  // after it wrote 0 to 3
  EXPECT_EQ(family.walk(3, {{1, {run('x', 0, 4), run('s', 4, 10)}}, {second, {run('S', 0, 10)}}}),
            (Sums{{"0 copied", 4}, {"1 by relatives", 4}}));
  family.sharing.leave(second, 3.1);
  const PageSharing::Member third = family.fork(0, 3.5);
  EXPECT_EQ(family.walk(4, {{0, {run('S', 0, 4), run('s', 4, 10)}},
                            {1, {run('x', 0, 4), run('s', 4, 10)}},
                            {third, {run('S', 0, 10)}}}),
            Sums{});
}

TEST(PageSharing, AParentMayCopyBeforeAForkAndAfterIt) {
  Family family;
  EXPECT_EQ(family.fork(0, 2), 2U);
  const Runs own{run('X', 0, 10)};
  EXPECT_EQ(family.walk(3, {{1, own}}, 0), Sums{});
  EXPECT_EQ(family.walk(4, {{0, own}}), (Sums{{"0 copied", 10}, {"1 by relatives", 10}}));
  EXPECT_EQ(family.walk(5, {{2, own}}, 1), (Sums{{"2 copied", 1}, {"0 copied", 9}, {"2 by relatives", 9}}));
  EXPECT_EQ(family.walk(6, {{0, own}, {1, own}, {2, own}}), Sums{});
}

// The parent has forked once more, but its marks are older than the copy: it has the old page, so the other one copied.
TEST(PageSharing, WhoStillHasItsMarkDidNotCopyWhoeverItForked) {
  Family family;
  family.sharing.mark(0, page(0), page(10));
  EXPECT_EQ(family.fork(0, 2), 2U);
  EXPECT_EQ(family.walk(3, {{1, {run('X', 0, 4), run('S', 4, 10)}}}, 0), Sums{});
  EXPECT_EQ(family.walk(4, {{0, {run('s', 0, 10)}}}), (Sums{{"1 copied", 4}}));
  family.sharing.leave(2, 5);
  EXPECT_EQ(family.walk(6, {{0, {run('x', 0, 4), run('s', 4, 10)}}}), (Sums{{"0 left", 4}}));
}

// The parent forked in each of its walks since its first child was born, so they are none; but it was marked after
// them.
TEST(PageSharing, WhoWasBornBeforeTheMarkDoesNotShareTheCopy) {
  Family family;
  const Runs all{run('S', 0, 10)};
  family.sharing.skip_walk(0, all, 2);
  family.sharing.mark(0, page(0), page(10));
  EXPECT_EQ(family.fork(0, 3), 2U);  // after it wrote 0 to 3
  EXPECT_EQ(family.walk(4, {{0, {run('S', 0, 4), run('s', 4, 10)}}}), (Sums{{"0 copied", 4}, {"1 by relatives", 4}}));
  EXPECT_EQ(family.walk(5, {{1, {run('X', 0, 4), run('S', 4, 10)}}}, 0), Sums{});
  EXPECT_EQ(family.walk(6, {{2, all}}, 0), Sums{});
}

TEST(PageSharing, ASkippedWalkMarksAnewWhatItShowsWritten) {
  Family family;
  family.sharing.mark(0, page(0), page(10));
  family.sharing.skip_walk(0, {run('S', 0, 4), run('s', 4, 10)}, 2);  // it wrote 0 to 3, and forked
  family.sharing.mark(0, page(0), page(10));
  EXPECT_EQ(family.fork(0, 2), 2U);
  EXPECT_EQ(family.walk(3, {{1, {run('X', 0, 4), run('S', 4, 10)}}}, 0), Sums{});
  EXPECT_EQ(family.walk(4, {{0, {run('s', 0, 10)}}}), (Sums{{"0 copied", 4}, {"1 by relatives", 4}}));
}

// Two children, walked one after the other, have no faults to copy: their parent copied between their births.
TEST(PageSharing, WithoutMarksAChildMayHaveWhatItsParentCopied) {
  Family family(2);
  EXPECT_EQ(family.walk(2, {{1, {run('X', 0, 4), run('S', 4, 10)}}}, 0), Sums{});
  EXPECT_EQ(family.walk(3, {{2, {run('X', 0, 4), run('S', 4, 10)}}}, 0),
            (Sums{{"0 copied", 4}, {"1 by relatives", 4}}));
}

// The child's writes have split its huge page, and the parent's says "mapped once", as the first of them was to its
// head.
TEST(PageSharing, WhoHasAHugePageWholeHasNotWritten) {
  for (const bool marked : {false, true}) {
    Family family;
    if (marked) family.sharing.mark(1, page(0), page(10));
    const Runs child{run('X', 0, 1), run(marked ? 's' : 'S', 1, 6), run('X', 6, 8), run(marked ? 's' : 'S', 8, 10)};
    EXPECT_EQ(family.walk(2, {{0, {run('H', 0, 10)}}}), Sums{});
    EXPECT_EQ(family.walk(3, {{0, {run('H', 0, 10)}}, {1, child}}, 0), (Sums{{"1 copied", 3}, {"0 by relatives", 3}}));
    family.sharing.leave(1, 3.5);
    EXPECT_EQ(family.walk(4, {{0, {run('H', 0, 10)}}}), (Sums{{"0 left", 7}}));
  }
}

// The kernel merges what a process has into 2 MiB of its own (khugepaged): pages that it copied and such as it did not.
TEST(PageSharing, WhatTheKernelMergedIsACopy) {
  Family family;
  EXPECT_EQ(family.walk(2, {{0, {run('S', 0, 10)}}, {1, {run('S', 0, 10)}}}), Sums{});
  EXPECT_EQ(family.walk(3, {{1, {run('X', 0, 4), run('S', 4, 10)}}}), (Sums{{"1 copied", 4}, {"0 by relatives", 4}}));
  EXPECT_EQ(family.walk(4, {{1, {run('H', 0, 10)}}}, 0), (Sums{{"1 copied", 6}, {"0 by relatives", 6}}));
  EXPECT_EQ(family.walk(5, {{0, {run('X', 0, 10)}}, {1, {run('H', 0, 10)}}}), Sums{});
}

TEST(PageSharing, WhatWasMergedBeforeAForkIsShared) {
  Family family;
  EXPECT_EQ(family.walk(2, {{0, {run('S', 0, 10)}}, {1, {run('S', 0, 10)}}}), Sums{});
  family.sharing.leave(1, 3);
  EXPECT_EQ(family.walk(4, {{0, {run('H', 0, 10)}}}), (Sums{{"0 left", 10}}));
  family.fork(0, 5);
  // Its first page has been copied by the child, which makes the parent's "mapped once".
  EXPECT_EQ(family.walk(6, {{0, {run('H', 0, 10)}}, {2, {run('X', 0, 1), run('S', 1, 10)}}}),
            (Sums{{"2 copied", 1}, {"0 by relatives", 1}}));
}

TEST(PageSharing, AParentThatForksAgainSharesItsPagesAgain) {
  Family family(1, true);
  EXPECT_EQ(family.walk(2, {{0, {run('x', 0, 10)}}, {1, {run('X', 0, 10)}}}),
            (Sums{{"1 copied", 10}, {"0 by relatives", 10}}));
  const auto second = family.fork(0, 3);
  family.sharing.mark(second, page(0), page(10));
  EXPECT_EQ(family.walk(4, {{0, {run('s', 0, 10)}}, {1, {run('X', 0, 10)}}, {second, {run('s', 0, 10)}}}), Sums{});
  EXPECT_EQ(family.walk(5, {{0, {run('X', 0, 2), run('s', 2, 10)}},
                            {1, {run('X', 0, 10)}},
                            {second, {run('x', 0, 2), run('s', 2, 10)}}}),
            (Sums{{"0 copied", 2}, {"2 by relatives", 2}}));
}

TEST(PageSharing, WhatWasWrittenBeforeAForkIsSharedWithThatChildOnly) {
  Family family(1, true);
  EXPECT_EQ(family.walk(2, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}}), Sums{});
  family.fork(0, 3);  // after the parent wrote 0 to 4
  EXPECT_EQ(
      family.walk(
          4, {{0, {run('S', 0, 5), run('s', 5, 10)}}, {1, {run('x', 0, 5), run('s', 5, 10)}}, {2, {run('S', 0, 10)}}}),
      (Sums{{"0 copied", 5}, {"1 by relatives", 5}}));
  family.sharing.leave(2, 5);
  EXPECT_EQ(family.walk(6, {{0, {run('X', 0, 5), run('s', 5, 10)}}, {1, {run('x', 0, 5), run('s', 5, 10)}}}),
            (Sums{{"0 left", 5}}));
}

TEST(PageSharing, WhatIsNoWalkSinceAFork) {
  Family family;
  family.fork(0, 2);
  EXPECT_TRUE(family.sharing.has_forked_since(0, 1.5));
  EXPECT_FALSE(family.sharing.has_forked_since(0, 2));
  EXPECT_FALSE(family.sharing.has_forked_since(1, 0));
}

TEST(PageSharing, GrandchildrenShareWithTheWholeFamily) {
  Family family(1, true);
  const auto grandchild = family.fork(1, 2);
  family.sharing.mark(grandchild, page(0), page(10));
  EXPECT_EQ(family.walk(3, {{0, {run('s', 0, 10)}}, {1, {run('s', 0, 10)}}, {grandchild, {run('X', 0, 10)}}}),
            (Sums{{"2 copied", 10}}));
  family.sharing.leave(1, 4);
  EXPECT_EQ(family.walk(5, {{0, {run('x', 0, 10)}}, {grandchild, {run('X', 0, 10)}}}), (Sums{{"0 left", 10}}));
}

TEST(PageSharing, TheParentEndsFirst) {
  Family family(2, true);
  family.sharing.leave(0, 2);
  EXPECT_EQ(family.walk(3, {{1, {run('s', 0, 10)}}, {2, {run('s', 0, 10)}}}), Sums{});
  EXPECT_EQ(family.walk(4, {{1, {run('X', 0, 6), run('s', 6, 10)}}, {2, {run('x', 0, 6), run('s', 6, 10)}}}),
            (Sums{{"1 copied", 6}, {"2 by relatives", 6}}));
  family.sharing.leave(1, 5);
  EXPECT_EQ(family.walk(6, {{2, {run('x', 0, 10)}}}), (Sums{{"2 left", 4}}));
}

TEST(PageSharing, UnmappedPagesAreLeftAndNotInheritedAgain) {
  Family family;
  family.sharing.drop(0, page(2), page(5), 2);
  EXPECT_EQ(family.walk(3, {{0, {run('S', 0, 2), run('X', 2, 5), run('S', 5, 10)}},  // new memory at the old place
                            {1, {run('S', 0, 2), run('X', 2, 5), run('S', 5, 10)}}}),
            (Sums{{"1 left", 3}}));
  // A walk that lacks pages says the same.
  EXPECT_EQ(family.walk(4, {{0, {run('S', 0, 2)}}, {1, {run('S', 0, 2), run('X', 2, 10)}}}), (Sums{{"1 left", 5}}));
}

TEST(PageSharing, AnEarlierWalkInTheSameRoundMayShowWhatIsNoMore) {
  Family family(1, true);
  // The child was walked first and wrote then, the parent was walked next.
  EXPECT_EQ(family.walk(2, {{0, {run('x', 0, 10)}}, {1, {run('s', 0, 10)}}}), Sums{});
  EXPECT_EQ(family.walk(3, {{0, {run('x', 0, 10)}}, {1, {run('X', 0, 10)}}}),
            (Sums{{"1 copied", 10}, {"0 by relatives", 10}}));
}

TEST(PageSharing, WhetherSomebodyCopiedOrEndedMayBeHeardLater) {
  Family copied(1, true), ended(1, true), never(1, true);
  for (Family* family : {&copied, &ended, &never}) EXPECT_EQ(family->walk(2, {{0, {run('x', 0, 10)}}}), Sums{});
  EXPECT_EQ(copied.walk(3, {{1, {run('X', 0, 10)}}}), (Sums{{"1 copied", 10}, {"0 by relatives", 10}}));
  ended.sharing.leave(1, 3);
  EXPECT_EQ(ended.walk(4, {{0, {run('x', 0, 10)}}}), (Sums{{"0 left", 10}}));
  EXPECT_EQ(sums(ended.sharing.finish({true, true})), Sums{});
  EXPECT_EQ(sums(never.sharing.finish({true, true})), (Sums{{"0 left", 10}}));
}

TEST(PageSharing, SwappedPagesKeepTheirHolders) {
  Family family;
  Runs swapped{{.start = page(0), .end = page(10)}};
  EXPECT_EQ(family.walk(2, {{1, swapped}}), Sums{});
  EXPECT_EQ(family.walk(3, {{0, {run('X', 0, 10)}}, {1, {run('X', 0, 10)}}}),
            (Sums{{"1 copied", 10}, {"0 by relatives", 10}}));
}

// 400 pages: 100 copied by the child, 50 by the parent, 20 and 30 written again, 250 left by the child's end; each
// process is walked by itself.
TEST(PageSharing, FourHundredPages) {
  for (const bool marked : {true, false}) {
    PageSharing sharing(kPage);
    sharing.add(std::nullopt, 0);
    sharing.add(0, 1);
    sharing.share(1, page(0), page(400), 1);
    if (marked)
      for (const PageSharing::Member member : {0U, 1U}) sharing.mark(member, page(0), page(400));
    Sums total;
    double time_s = 2;
    const auto walk = [&](PageSharing::Member member, const Runs& runs) {
      for (const auto& [what, pages] : sums(sharing.observe({{member, &runs, 200}}, time_s))) total[what] += pages;
      time_s += 1;
    };
    walk(0, {run('s', 0, 400)});
    walk(1, {run('s', 0, 400)});
    walk(1, {run('X', 0, 100), run('s', 100, 400)});
    walk(0, {run('x', 0, 100), run('s', 100, 400)});
    walk(0, {run('x', 0, 100), run('X', 100, 150), run('s', 150, 400)});
    walk(1, {run('X', 0, 100), run('x', 100, 150), run('s', 150, 400)});
    walk(0, {run('X', 0, 20), run('x', 20, 100), run('X', 100, 150), run('s', 150, 400)});
    walk(1, {run('X', 0, 130), run('x', 130, 150), run('s', 150, 400)});
    sharing.leave(1, time_s);
    walk(0, {run('X', 0, 20), run('x', 20, 100), run('X', 100, 150), run('x', 150, 400)});
    Sums expected{
        {"1 copied", 100}, {"0 by relatives", 100}, {"0 copied", 50}, {"1 by relatives", 50}, {"0 left", 250}};
    if (marked) expected.insert({{"0 reused", 20}, {"1 reused", 30}});
    EXPECT_EQ(total, expected) << marked;
  }
}

}  // namespace
}  // namespace whyrss::page_sharing_test
