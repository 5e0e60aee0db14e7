// What changed between two jobs: groups, lines within their errors, nodes by ranks, outliers, what is missing.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job/job_diff_formats.h"
#include "made_parts.h"
#include "text_width.h"

namespace whyrss::job_diff_test {
namespace {

using made::kMiB;
using Recordings = std::vector<ReducedRecording>;

JobView job_of(const Recordings& recordings) {
  std::vector<MergeInput> parts;
  for (const ReducedRecording& recording : recordings) parts.push_back(made::part(recording));
  return made::folded(made::merged(parts));
}

// 40 ranks on 5 nodes; `large` has 200 MiB more.
Recordings ranks_of(std::int64_t bytes, int large = -1) {
  Recordings recordings;
  for (int rank = 0; rank < 40; ++rank)
    recordings.push_back(
        made::recording(rank, bytes + (rank == large ? 200 * kMiB : 0), fmt::format("node{}", rank / 8)));
  return recordings;
}

struct Compared {
  Compared(const Recordings& of_a, const Recordings& of_b) : a(job_of(of_a)), b(job_of(of_b)), diff(diff_jobs(a, b)) {}
  Compared(const Compared&) = delete;
  Compared& operator=(const Compared&) = delete;
  [[nodiscard]] const JobLineDiff* line(Cause cause) const {
    for (const JobLineDiff& one : diff.lines)
      if (one.line.cause == cause) return &one;
    return nullptr;
  }
  JobView a, b;
  JobDiff diff;
};

TEST(JobDiff, SumsGroupsAndLines) {
  const Compared compared(ranks_of(68 * kMiB), ranks_of(78 * kMiB));
  const JobDiff& diff = compared.diff;
  EXPECT_EQ(diff.rss.change(), 40 * 10 * kMiB);
  EXPECT_FALSE(diff.pss.has_value());
  ASSERT_EQ(diff.groups.size(), 1U);
  EXPECT_EQ(diff.groups.front().median.change(), 10 * kMiB);
  EXPECT_EQ(diff.causes.front().cause, Cause::heap_live);
  EXPECT_EQ(diff.causes.front().figure.change(), 40 * 10 * kMiB);
  EXPECT_EQ(diff.lines.front().line.function, "load");
  EXPECT_EQ(diff.lines.front().line.line_b, 11);
  EXPECT_EQ(diff.lines.front().line.figure.state(), DiffState::grown);
  EXPECT_EQ(compared.line(Cause::file_cache)->line.figure.state(), DiffState::same);
  const std::string text = render_job_diff_text(diff, {});
  EXPECT_NE(text.find("train.py, median of 40 and 40: 100 MiB in A, 110 MiB in B: +10 MiB (+10 %)"), std::string::npos)
      << text;
}

TEST(JobDiff, ALineThatHasMovedIsTheSame) {
  Recordings b = ranks_of(68 * kMiB);
  for (ReducedRecording& recording : b) recording.lines[0] = {"cache.py:14 in load", "/other/place/cache.py", ""};
  const Compared compared(ranks_of(60 * kMiB), b);
  const DiffLine& line = compared.line(Cause::heap_live)->line;
  EXPECT_EQ(line.line_a, 11);
  EXPECT_EQ(line.line_b, 14);
  EXPECT_EQ(line.figure.change(), 40 * 8 * kMiB);
}

// Half of the ranks have too many lines to list this one; they may have what it lost.
TEST(JobDiff, WhatIsNotListedMayExplainAChange) {
  Recordings b = ranks_of(68 * kMiB);
  for (std::size_t i = 0; i < b.size(); i += 2) {
    ReducedProcess& process = b[i].processes.front();
    process.lines.erase(process.lines.begin());
    process.causes[1].omitted = 10;
    process.causes[1].omitted_at_peak = process.causes[1].omitted_most = 68 * kMiB;
  }
  const Compared compared(ranks_of(68 * kMiB), b);
  const DiffFigure& figure = compared.line(Cause::heap_live)->line.figure;
  EXPECT_EQ(figure.change(), -20 * 68 * kMiB);
  EXPECT_EQ(figure.more_b, 20 * 68 * kMiB);
  EXPECT_EQ(figure.state(), DiffState::same);
  const std::string text = render_job_diff_text(compared.diff, {});
  EXPECT_NE(text.find("1 line changed within the error, and is not shown"), std::string::npos) << text;
  EXPECT_EQ(text.find("cache.py:11"), std::string::npos) << text;
}

TEST(JobDiff, ALineThatNobodyListsMayBeThere) {
  Recordings b = ranks_of(68 * kMiB);
  for (ReducedRecording& recording : b) {
    ReducedProcess& process = recording.processes.front();
    process.lines.erase(process.lines.begin());
    process.causes[1].omitted = 100;
    process.causes[1].omitted_at_peak = 68 * kMiB;
    process.causes[1].omitted_most = kMiB;
  }
  const Compared compared(ranks_of(68 * kMiB), b);
  const DiffFigure& figure = compared.line(Cause::heap_live)->line.figure;
  EXPECT_EQ(figure.more_b, 40 * kMiB);
  EXPECT_EQ(figure.state(), DiffState::gone);
  EXPECT_EQ(figure.most_change(), -40 * 67 * kMiB);
}

TEST(JobDiff, SamplingErrorsAreTold) {
  Recordings b = ranks_of(70 * kMiB);
  for (ReducedRecording& recording : b) recording.processes.front().lines.front().error_kib = 10 * 1024;
  const Compared noise(ranks_of(68 * kMiB), b);
  EXPECT_EQ(noise.line(Cause::heap_live)->line.figure.state(), DiffState::same);  // 80 MiB beside 63
  const Compared real(ranks_of(60 * kMiB), b);
  EXPECT_EQ(real.line(Cause::heap_live)->line.figure.state(), DiffState::grown);
}

TEST(JobDiff, OutliersAreNewOrGone) {
  const Compared compared(ranks_of(68 * kMiB, 3), ranks_of(68 * kMiB, 37));
  ASSERT_EQ(compared.diff.outliers.size(), 2U);
  EXPECT_EQ(compared.diff.outliers[0].b->process.rank, 37);
  EXPECT_EQ(compared.diff.outliers[0].a, nullptr);
  EXPECT_EQ(compared.diff.outliers[1].a->process.rank, 3);
  const std::string text = render_job_diff_text(compared.diff, {});
  EXPECT_NE(text.find("Only in B rank 37 of 40 holds 3.0 times the median: cache.py:11 in load"), std::string::npos)
      << text;
  EXPECT_NE(text.find("Only in A rank 3 of 40 holds"), std::string::npos) << text;
  const Compared same(ranks_of(68 * kMiB, 3), ranks_of(68 * kMiB, 3));
  EXPECT_NE(render_job_diff_text(same.diff, {}).find("1 process holds far more than the median of its like in both"),
            std::string::npos);
}

// The second run was given other nodes; of rank 37 nothing was recorded there.
TEST(JobDiff, NodesAreFoundByTheirRanks) {
  Recordings b;
  for (int rank = 0; rank < 40; ++rank)
    if (rank != 37) b.push_back(made::recording(rank, 68 * kMiB, fmt::format("other{}", rank / 8)));
  const Compared compared(ranks_of(68 * kMiB, 37), b);
  EXPECT_EQ(compared.diff.nodes.size(), 4U);
  for (const NodeDiff& node : compared.diff.nodes) EXPECT_EQ(node.a->ranks, node.b->ranks);
  ASSERT_EQ(compared.diff.only_a.size(), 1U);
  EXPECT_EQ(compared.diff.only_a.front()->name, "node4");
  EXPECT_EQ(compared.diff.only_b.front()->name, "other4");
  const std::string text = render_job_diff_text(compared.diff, {});
  EXPECT_NE(text.find("1 of 5 nodes is only in A, not in B: node4; the sums of A hold their 8 processes"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("it was not recorded in B"), std::string::npos) << text;
  EXPECT_NE(text.find("other0 (node0 in A)"), std::string::npos) << text;
}

TEST(JobDiff, NoLineIsWiderThanItMayBe) {
  Recordings b;
  const std::string name(300, 'n');
  for (int rank = 0; rank < 40; ++rank) {
    ReducedRecording one = made::recording(rank, (rank == 3 ? 900 : 90) * kMiB, fmt::format("{}{}", name, rank / 8));
    one.lines[0].text = name + ".py:11 in load";
    one.processes.front().name = name;
    b.push_back(std::move(one));
  }
  const JobView job = job_of(b);
  const Compared compared(ranks_of(68 * kMiB, 37), b);
  for (const std::size_t columns : {60U, 80U, 100U, 180U}) {
    const std::string text = render_job_diff_text(compared.diff, {.columns = columns});
    EXPECT_LE(widest_line(text), columns) << text;
    EXPECT_NE(text.find("4410.0"), std::string::npos) << text;  // 39 of 90 MiB and one of 900
    EXPECT_LE(widest_line(render_job_text(job, {.columns = columns})), columns)
        << render_job_text(job, {.columns = columns});
  }
}

TEST(JobDiff, PssOfProcessesThatWereNotReadIsAnError) {
  Recordings a = ranks_of(68 * kMiB), b = ranks_of(68 * kMiB);
  for (ReducedRecording& recording : a) recording.processes.front().pss_peak = 80 * kMiB;
  for (ReducedRecording& recording : b) recording.processes.front().pss_peak = 80 * kMiB;
  b.front().processes.front().pss_peak.reset();
  const Compared compared(a, b);
  ASSERT_TRUE(compared.diff.pss.has_value());
  EXPECT_EQ(compared.diff.pss->change(), -80 * kMiB);
  EXPECT_EQ(compared.diff.pss->more_b, 100 * kMiB);
  EXPECT_EQ(compared.diff.pss->state(), DiffState::same);
  EXPECT_NE(render_job_diff_text(compared.diff, {.columns = 200}).find("-80 MiB (-2 %), within the error"),
            std::string::npos);
}

TEST(JobDiff, LinesBeyondTheTopAreSummedPerCause) {
  const Compared compared(ranks_of(68 * kMiB), ranks_of(78 * kMiB));
  const auto json = nlohmann::json::parse(render_job_diff_json(compared.diff, 1));
  ASSERT_EQ(json["lines"].size(), 2U);
  EXPECT_EQ(json["lines"][0]["line"], "cache.py:11 in load");
  EXPECT_EQ(json["lines"][1]["cause"], "file_cache");
  EXPECT_EQ(json["lines"][1]["a"], 40 * 32 * kMiB);
  EXPECT_TRUE(json["lines"][1]["group"].is_null());
}

}  // namespace
}  // namespace whyrss::job_diff_test
