// Merges: in any order and any tree the same bytes; what is there twice counts once; what does not belong is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "job/log_sketch.h"
#include "job/node_list.h"
#include "made_parts.h"

namespace whyrss::job_merge_test {
namespace {

using made::kMiB;

std::vector<MergeInput> some_parts() {
  std::vector<MergeInput> parts;
  for (int rank = 0; rank < 9; ++rank)
    parts.push_back(made::part(made::recording(rank, (rank + 1) * kMiB, rank % 2 == 0 ? "node1" : "node2")));
  parts[3].index.node_lists = {"node[1-3]"};
  parts[7].index.node_lists = {"3"};
  // One that was reduced while it ran, and a copy.
  ReducedRecording early = made::recording(4, kMiB);
  early.complete = false;
  early.duration_ms = 100;
  parts.push_back(made::part(early));
  parts.push_back(MergeInput(parts[2]));
  return parts;
}

TEST(JobMerge, AllTreesAndOrdersAreTheSameBytes) {
  const std::string expected = made::bytes_of(made::merged(some_parts()));
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<MergeInput> left = some_parts();
    while (left.size() > 1) {
      std::ranges::shuffle(left, random);
      const std::size_t count = 2 + random() % std::min<std::size_t>(left.size() - 1, 3);
      const auto end = left.begin() + static_cast<std::ptrdiff_t>(count);
      std::vector<MergeInput> some(left.begin(), end);
      left.erase(left.begin(), end);
      left.push_back(made::merged(some));
      if (random() % 4 == 0) left.push_back(some_parts()[random() % 11]);  // once more
    }
    ASSERT_EQ(made::bytes_of(left.front()), expected) << round;
  }
}

TEST(JobMerge, WhatIsThereTwiceCountsOnce) {
  const std::vector<MergeInput> parts = some_parts();
  const auto plan = plan_merge(parts, false);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->index.entries.size(), 9U);
  EXPECT_EQ(plan->repeated, 2U);
  const JobView job = made::folded(made::merged(parts));
  EXPECT_EQ(job.complete_count, 9U);
  EXPECT_EQ(job.groups.front().process_count, 9U);
}

TEST(JobMerge, TwoJobsAreRefusedUnlessAskedFor) {
  ReducedRecording other = made::recording(2, kMiB), unknown = made::recording(3, kMiB);
  other.job = "78";
  unknown.job.clear();
  const std::vector<MergeInput> parts{made::part(made::recording(1, kMiB), "one.part"), made::part(unknown, "two.part"),
                                      made::part(other, "three.part")};
  const auto refused = plan_merge(parts, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error(),
            "one.part is of job 77, three.part of job 78: merge each job by itself, or add --several-jobs");
  EXPECT_TRUE(plan_merge(parts, true).ok());
  EXPECT_TRUE(plan_merge({parts[0], parts[1]}, false).ok());
}

TEST(LogSketch, QuantilesAreWithinAPercent) {
  std::mt19937_64 random(2);
  std::vector<std::int64_t> values;
  LogSketch whole, first, second;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<std::int64_t>(random() >> (random() % 50 + 3)));
    whole.add(values.back());
    (i % 3 == 0 ? first : second).add(values.back());
  }
  std::ranges::sort(values);
  for (const double share : {0.01, 0.5, 0.9, 0.999, 1.0}) {
    const auto exact = static_cast<double>(values[static_cast<std::size_t>(std::ceil(share * 20'000)) - 1]);
    EXPECT_NEAR(static_cast<double>(whole.quantile(share)), exact, exact * LogSketch::kRelativeError + 1) << share;
  }
  LogSketch one = first, other = second;
  one.merge(second);
  other.merge(first);
  EXPECT_EQ(one, whole);
  EXPECT_EQ(other, whole);
}

TEST(LogSketch, ZerosAndNothing) {
  LogSketch sketch;
  EXPECT_EQ(sketch.quantile(0.5), 0);
  sketch.add(1000);
  EXPECT_NEAR(static_cast<double>(sketch.quantile(0.5)), 1000, 10);
  EXPECT_EQ(sketch.quantile(0.5, 1), 0);  // the lower one in the middle
  EXPECT_NEAR(static_cast<double>(sketch.quantile(1, 1)), 1000, 10);
  sketch.add(0, 5);
  EXPECT_EQ(sketch.quantile(0.5), 0);
}

TEST(NodeList, ExpandsWhatSlurmWrites) {
  const auto names = [](const char* list) {
    const auto expanded = expand_nodes(list);
    return expanded ? *expanded : std::vector<std::string>{expanded.error()};
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("a,b"), (Names{"a", "b"}));
  EXPECT_EQ(names("node[008-010,3],gpu1"), (Names{"node008", "node009", "node010", "node3", "gpu1"}));
  EXPECT_EQ(names("r[1-2]n[1-2].x"), (Names{"r1n1.x", "r1n2.x", "r2n1.x", "r2n2.x"}));
  for (const char* wrong : {"a[", "a[1-", "a[2-1]", "a]", "a,,b", "a[x]", "a[]", "a[1-9999999999]", "[1-9999][1-9999]"})
    EXPECT_FALSE(expand_nodes(wrong).ok()) << wrong;
}

TEST(NodeList, RanksAreWrittenShort) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(ranges_text({0, 2, 4}, 2), "0,2,...");
}

}  // namespace
}  // namespace whyrss::job_merge_test
