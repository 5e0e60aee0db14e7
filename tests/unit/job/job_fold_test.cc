// The report of a job: ranks alike in one row, who is far from them, sums of nodes, what is missing.
#include <gtest/gtest.h>

#include "job/job_text.h"
#include "made_parts.h"

namespace whyrss::job_fold_test {
namespace {

using made::kMiB;

JobView job_of(const std::vector<ReducedRecording>& recordings, const std::string& nodes = "") {
  std::vector<MergeInput> parts;
  for (const ReducedRecording& recording : recordings) parts.push_back(made::part(recording));
  if (!nodes.empty()) parts.front().index.node_lists = {nodes};
  return made::folded(made::merged(parts), 3);
}

// Of rank 37 three times as much.
std::vector<ReducedRecording> forty_ranks() {
  std::vector<ReducedRecording> recordings;
  for (int rank = 0; rank < 40; ++rank)
    recordings.push_back(made::recording(rank, (rank == 37 ? 268 : 68) * kMiB, fmt::format("node{}", rank / 8)));
  return recordings;
}

bool has_note(const JobView& job, const std::string& part) {
  return std::ranges::any_of(job.notes, [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST(JobFold, RanksAlikeAreOneRowAndTheOutlierIsNamed) {
  const JobView job = job_of(forty_ranks());
  ASSERT_EQ(job.groups.size(), 1U);
  EXPECT_EQ(job.groups.front().rss_peak.median, 100 * kMiB);
  EXPECT_EQ(job.groups.front().rss_peak.max, 300 * kMiB);
  EXPECT_EQ(job.groups.front().rss_peak.sum, (39 * 100 + 300) * kMiB);
  ASSERT_EQ(job.outliers.size(), 1U);
  EXPECT_EQ(outlier_text(job, job.outliers.front()),
            "rank 37 of 40 holds 3.0 times the median: cache.py:11 in load (300 MiB, median 100 MiB; there 268 MiB "
            "live heap, median 69 MiB)");
  const std::string text = render_job_text(job, {});
  EXPECT_NE(text.find("train.py, rank 0-39"), std::string::npos) << text;
  EXPECT_NE(text.find("40 of 40 ranks of train.py: heap-growth, median 68 MiB, most 268 MiB (rank 37)"),
            std::string::npos)
      << text;
}

TEST(JobFold, LinesAreSummedWithTheErrorOfWhatIsNotListed) {
  std::vector<ReducedRecording> recordings = forty_ranks();
  ReducedProcess& unlisted = recordings[5].processes.front();  // whose line was too small
  unlisted.lines.erase(unlisted.lines.begin());
  unlisted.causes[1].omitted = 1;
  unlisted.causes[1].omitted_at_peak = unlisted.causes[1].omitted_most = 68 * kMiB;
  const JobGroup group = job_of(recordings).groups.front();
  const auto line = std::ranges::find(group.lines, Cause::heap_live, &GroupLine::cause);
  ASSERT_NE(line, group.lines.end());
  EXPECT_EQ(line->process_count, 39U);
  EXPECT_EQ(line->sum, (38 * 68 + 268) * kMiB);
  EXPECT_EQ(line->error, 68 * kMiB);
  EXPECT_EQ(line->most, 268 * kMiB);
  EXPECT_NEAR(static_cast<double>(line->median), 68.0 * kMiB, 0.011 * 68 * kMiB);
}

TEST(JobFold, AFewWorkersAreNoOutliersOfTheirMains) {
  std::vector<ReducedRecording> recordings = forty_ranks();
  for (ReducedRecording& recording : recordings) {
    ReducedProcess worker = recording.processes.front();
    worker.parent = worker.pid;
    worker.pid += 1000;
    worker.rss_peak = 10 * kMiB;
    recording.processes.push_back(worker);
  }
  const JobView job = job_of(recordings);
  ASSERT_EQ(job.groups.size(), 2U);
  EXPECT_TRUE(job.groups[1].is_worker);
  EXPECT_EQ(job.groups[1].process_count, 40U);
  EXPECT_EQ(job.outliers.size(), 1U);
  EXPECT_EQ(job.ranks.size(), 40U);
}

TEST(JobFold, FilesOfANodeCountOnce) {
  const JobView job = job_of(forty_ranks());
  ASSERT_EQ(job.nodes.size(), 5U);
  const NodeSum& fullest = job.nodes.front();  // with rank 37
  EXPECT_EQ(fullest.name, "node4");
  EXPECT_EQ(fullest.private_peak, (7 * 68 + 268) * kMiB);
  EXPECT_EQ(fullest.files_once, 32 * kMiB);
  EXPECT_EQ(fullest.rss_sum_peak, (7 * 100 + 300) * kMiB);
  EXPECT_EQ(fullest.limit, 1024 * kMiB);
  ASSERT_EQ(job.files.size(), 1U);
  EXPECT_EQ(job.files.front().rss_sum, 40 * 32 * kMiB);
  EXPECT_EQ(job.files.front().once, 5 * 32 * kMiB);
  EXPECT_EQ(job.files.front().node_count, 5U);
}

// What a child inherited costs nothing: it is no outlier beside its parent.
TEST(JobFold, WhatAForkSharesIsNotHeld) {
  std::vector<ReducedRecording> recordings = forty_ranks();
  ReducedProcess& process = recordings[37].processes.front();
  process.causes[1].cause = process.lines[0].cause = Cause::fork_shared;
  std::ranges::sort(process.causes, {}, &CauseFigures::cause);
  EXPECT_TRUE(job_of(recordings).outliers.empty());
}

// What ended before others began was not there at the same time.
TEST(JobFold, ANodesPeakIsOfOneMoment) {
  ReducedRecording first = made::recording(0, 100 * kMiB), second = made::recording(1, 100 * kMiB);
  first.processes.front().ended_ms = 900;
  second.started_ns += 3'000'000'000;
  EXPECT_EQ(job_of({first, second}).nodes.front().private_peak, 100 * kMiB);
  first.processes.front().ended_ms = 9000;
  EXPECT_EQ(job_of({first, second}).nodes.front().private_peak, 200 * kMiB);
}

TEST(JobFold, NearALimitIsSaid) {
  std::vector<ReducedRecording> recordings{made::recording(0, 900 * kMiB), made::recording(1, 20 * kMiB)};
  EXPECT_NE(render_job_text(job_of(recordings), {}).find("node1: 952 MiB of 1024 MiB (memory of the machine)"),
            std::string::npos)
      << render_job_text(job_of(recordings), {});
  for (ReducedRecording& recording : recordings) {
    recording.group_path = "/sys/fs/cgroup/job_77";
    recording.group_limit = 1000 * kMiB;
  }
  EXPECT_TRUE(job_of(recordings).nodes.front().limit_is_group);
  EXPECT_EQ(job_of(recordings).nodes.front().limit, 1000 * kMiB);
  recordings[1].group_path += "/other";  // containers, each with its own
  EXPECT_EQ(job_of(recordings).nodes.front().limit, 1024 * kMiB);
}

TEST(JobFold, MissingNodesAndRanksAreNamed) {
  std::vector<ReducedRecording> recordings = forty_ranks();
  for (ReducedRecording& recording : recordings) recording.processes.front().world_size = 42;
  const JobView job = job_of(recordings, "node[0-6]");
  EXPECT_EQ(job.missing_nodes, (std::vector<std::string>{"node5", "node6"}));
  EXPECT_TRUE(has_note(job, "2 of 7 nodes are missing: node5, node6"));
  EXPECT_EQ(job.missing_ranks, (std::vector<std::int64_t>{40, 41}));
  EXPECT_TRUE(has_note(job_of(recordings, "6"), "1 of 6 nodes is missing"));
  EXPECT_TRUE(job_of(recordings, "node[0-4].cluster.local").missing_nodes.empty());
}

TEST(JobFold, HostsOfOneNameAreNodesOfTheirOwn) {
  std::vector<ReducedRecording> recordings = forty_ranks();
  for (int rank = 8; rank < 16; ++rank) recordings[static_cast<std::size_t>(rank)].host = "node0";
  const JobView job = job_of(recordings);
  EXPECT_EQ(job.nodes.size(), 5U);
  EXPECT_TRUE(has_note(job, "2 machines, or boots of one, are called node0"));
}

TEST(JobFold, ContainersOfOneMachineAreOneNode) {
  std::vector<ReducedRecording> recordings{made::recording(0, kMiB), made::recording(1, kMiB)};
  recordings[1].host = recordings[1].node = "pod-2";
  const JobView job = job_of(recordings);
  ASSERT_EQ(job.nodes.size(), 1U);
  EXPECT_EQ(job.nodes.front().name, "node1+pod-2");
}

TEST(JobFold, ClocksHoursApartAreNamed) {
  std::vector<ReducedRecording> recordings = forty_ranks();
  EXPECT_FALSE(has_note(job_of(recordings), "clock"));
  for (int rank = 0; rank < 8; ++rank)
    recordings[static_cast<std::size_t>(rank)].started = "2026-03-01T15:30:00.000000Z";
  EXPECT_TRUE(has_note(job_of(recordings), "node0 began 3.5 h after the others, or its clock is wrong"));
}

TEST(JobFold, IncompleteRecordingsAreCounted) {
  std::vector<ReducedRecording> recordings = forty_ranks();
  for (int rank = 0; rank < 2; ++rank) {
    recordings[static_cast<std::size_t>(rank)].complete = false;
    recordings[static_cast<std::size_t>(rank)].incomplete_why = "the collector was killed";
  }
  EXPECT_TRUE(has_note(job_of(recordings), "2 recordings are incomplete: the collector was killed"));
}

TEST(JobFold, TheLargestProcessesAreShownInFull) {
  const JobView job = job_of(forty_ranks());
  ASSERT_EQ(job.processes.size(), 3U);
  EXPECT_EQ(job.processes.front().label.rank, 37);
  EXPECT_EQ(job.processes.front().process, made::process(37, 268 * kMiB));
  EXPECT_EQ(job.processes.front().lines.front().text, "cache.py:11 in load");
}

TEST(JobHeadlines, WhatNeedsADecisionComesFirst) {
  JobView job;
  for (const Severity severity : {Severity::ok, Severity::info, Severity::problem}) {
    JobGroup group;
    group.verdicts.push_back({.id = "x", .severity = severity, .process_count = 1, .bytes = {.max = 2 * kMiB}});
    job.groups.push_back(group);
  }
  job.world_size = 2;
  job.missing_ranks = {1};
  std::vector<Severity> order;
  for (const JobHeadline& headline : job_headlines(job, 10)) order.push_back(headline.severity);
  EXPECT_EQ(order, (std::vector{Severity::problem, Severity::warning, Severity::info, Severity::ok}));
}

}  // namespace
}  // namespace whyrss::job_fold_test
