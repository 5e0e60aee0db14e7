// Memory of a job over time: sums by cause, quantiles of processes, clocks of several nodes.
#include "job/job_timeline.h"

#include <gtest/gtest.h>

#include "made_parts.h"

namespace whyrss::job_timeline_test {
namespace {

using made::kMiB;

constexpr auto kHeap = static_cast<std::size_t>(Cause::heap_live);

JobTimeline timeline_of(const std::vector<ReducedRecording>& recordings) {
  std::vector<MergeInput> parts;
  for (const ReducedRecording& recording : recordings) parts.push_back(made::part(recording));
  const MergeInput job = made::merged(parts);
  const Result<JobTimeline> timeline = job_timeline(made::folded(job), job.index, [&](std::size_t entry) {
    return read_stored(*job.read(entry), job.index.entries[entry]);
  });
  require(timeline.ok(), "a whole part");
  return *timeline;
}

// Each is there from its snapshot at 500 ms to the end at 2000 ms.
TEST(JobTimeline, SumsAndQuantilesOfOneMoment) {
  std::vector<ReducedRecording> recordings;
  for (int rank = 0; rank < 100; ++rank)
    recordings.push_back(made::recording(rank, (rank + 1) * kMiB, fmt::format("node{}", rank % 5)));
  const JobTimeline timeline = timeline_of(recordings);
  ASSERT_EQ(timeline.groups.size(), 2U);
  EXPECT_FALSE(timeline.groups[0].group.has_value());
  EXPECT_EQ(timeline.groups[1].group, 0U);
  EXPECT_DOUBLE_EQ(timeline.stretch_s, 2.0 / kStretches);
  for (const GroupTimeline& group : timeline.groups) {
    EXPECT_EQ(group.stretches[59].process_count, 0U);
    EXPECT_EQ(group.stretches[59].causes[kHeap], 0);
    for (const std::size_t at : {std::size_t{60}, kStretches - 1}) {
      const TimelineStretch& stretch = group.stretches[at];
      EXPECT_EQ(stretch.process_count, 100U);
      EXPECT_NEAR(static_cast<double>(stretch.causes[kHeap]), 5050.0 * kMiB, 10);
      EXPECT_EQ(stretch.max, 132 * kMiB);
      EXPECT_NEAR(static_cast<double>(stretch.p50), 82.0 * kMiB, 0.011 * 82 * kMiB);
      EXPECT_NEAR(static_cast<double>(stretch.p99), 131.0 * kMiB, 0.011 * 131 * kMiB);
    }
  }
}

TEST(JobTimeline, WhatEndsWithinAStretchCountsForThatPartOfIt) {
  ReducedRecording recording = made::recording(0, 240 * kMiB);
  recording.duration_ms = 2400;  // a stretch has 10 ms
  recording.processes.front().ended_ms = 1005;
  const JobTimeline timeline = timeline_of({recording});
  const std::vector<TimelineStretch>& stretches = timeline.groups[0].stretches;
  EXPECT_EQ(stretches[99].causes[kHeap], 240 * kMiB);
  EXPECT_EQ(stretches[100].causes[kHeap], 120 * kMiB);
  EXPECT_EQ(stretches[100].max, 272 * kMiB);
  EXPECT_EQ(stretches[101].process_count, 0U);
}

// The clocks of two nodes have nothing to do with each other; those of two recordings on one node are the same.
TEST(JobTimeline, EachNodeBeginsAtZero) {
  ReducedRecording first = made::recording(0, 100 * kMiB, "node1"), other = made::recording(1, 100 * kMiB, "node2");
  ReducedRecording later = made::recording(2, 100 * kMiB, "node1");
  other.started_ns = 900'000'000'000'000;
  later.started_ns = first.started_ns + 2'000'000'000;
  const JobTimeline timeline = timeline_of({first, other, later});
  EXPECT_DOUBLE_EQ(timeline.stretch_s, 4.0 / kStretches);
  const std::vector<TimelineStretch>& stretches = timeline.groups[0].stretches;
  EXPECT_EQ(stretches[40].process_count, 2U);   // 0.67 s
  EXPECT_EQ(stretches[140].process_count, 0U);  // 2.33 s
  EXPECT_EQ(stretches[160].process_count, 1U);  // 2.67 s
}

TEST(JobTimeline, TimesOfADamagedRecordingStayWithinIt) {
  ReducedRecording recording = made::recording(0, 100 * kMiB);
  recording.started_ns = INT64_MIN;
  recording.duration_ms = INT64_MAX;
  recording.processes.front().moments.front().time_ms = 1LL << 60;
  recording.processes.front().ended_ms = -(1LL << 60);
  const JobTimeline timeline = timeline_of({recording});
  EXPECT_EQ(timeline.groups[0].stretches.size(), kStretches);
}

}  // namespace
}  // namespace whyrss::job_timeline_test
