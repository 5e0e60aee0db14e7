// What an allocator says about itself: from its records to the lines and figures of the reports.
#include <gtest/gtest.h>

#include "decode/allocator_records.h"
#include "literal_accounts.h"
#include "recording_builder.h"
#include "report/render/allocator_figures.h"
#include "report/render/json.h"
#include "report/view/build_view.h"

namespace whyrss::allocator_stats_test {
namespace {

using literal::kMiB;
using testing_support::ByteVector;

std::vector<AllocatorStats> taken(const ByteVector& bytes) {
  EventRecord record{};
  record.kind = trace::RecordKind::allocator_stats;
  record.bytes = bytes;
  std::vector<AllocatorStats> stats;
  take_allocator_stats(record, 1.5, stats);
  return stats;
}

std::vector<AllocatorStats> taken(std::string_view text, std::uint32_t moment = 0) {
  return taken(testing_support::text(trace::RecordKind::allocator_stats, 1, text, moment));
}

AllocatorStats said(std::map<std::string, std::int64_t> values, std::optional<std::int64_t> counted_bytes = {},
                    std::optional<std::int64_t> counted_blocks = {}, std::string moment = "peak") {
  return {.time_s = 2,
          .moment = std::move(moment),
          .values = std::move(values),
          .counted_bytes = counted_bytes,
          .counted_blocks = counted_blocks};
}

TEST(AllocatorRecords, NamesAndNumbers) {
  const auto stats = taken("uordblks=120 stats.allocated=7 whyrss.live_bytes=100 whyrss.live_blocks=3",
                           static_cast<std::uint32_t>(trace::StatsMoment::snapshot));
  ASSERT_EQ(stats.size(), 1U);
  EXPECT_EQ(stats[0].moment, "snapshot");
  EXPECT_EQ(stats[0].time_s, 1.5);
  EXPECT_EQ(stats[0].values, (std::map<std::string, std::int64_t>{{"uordblks", 120}, {"stats.allocated", 7}}));
  EXPECT_EQ(stats[0].counted_bytes, 100);
  EXPECT_EQ(stats[0].counted_blocks, 3);
}

TEST(AllocatorRecords, HostileOnesAddNothing) {
  EXPECT_TRUE(taken("").empty());
  EXPECT_TRUE(taken("uordblks uordblks= =5 uordblks=-5 uordblks=5x uordblks=99999999999999999999").empty());
  EXPECT_TRUE(taken("uordblks=9223372036854775807").empty());  // would overflow where figures are added
  EXPECT_TRUE(taken("\x1b[2Jname=5 NAME=5 " + std::string(65, 'a') + "=5").empty());
  EXPECT_TRUE(taken("whyrss.live_bytes=5").empty());
  EXPECT_TRUE(taken("uordblks=5", 4).empty());
  ByteVector cut = testing_support::text(trace::RecordKind::allocator_stats, 1, "uordblks=5");
  cut.resize(cut.size() - 8);
  EXPECT_TRUE(taken(cut).empty());
  EXPECT_TRUE(taken(ByteVector(20)).empty());
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "name" + std::to_string(i) + "=1 ";
  EXPECT_EQ(taken(many).at(0).values.size(), 32U);
}

TEST(AllocatorFigure, LikeIsComparedWithLike) {
  // 10 blocks in the heap and one in a mapping of its own: headers are not the program's.
  const auto glibc =
      allocator_figure(said({{"uordblks", 10 * 108}, {"hblkhd", 4096}, {"hblks", 1}}, 10 * 100 + 4080, 11));
  EXPECT_EQ(glibc.allocated, 10 * 100 - 0 + 4080);
  EXPECT_EQ(glibc.difference, 0.0);
  const auto jemalloc =
      allocator_figure(said({{"stats.allocated", 1000}, {"stats.arenas.4096.tcache_bytes", 200}}, 1000));
  EXPECT_EQ(jemalloc.allocated, 800);
  EXPECT_DOUBLE_EQ(jemalloc.difference.value_or(9), -0.2);
  EXPECT_EQ(allocator_figure(said({{"generic.current_allocated_bytes", 500}}, 400)).difference, 0.2);
  const auto mimalloc = allocator_figure(said({{"current_commit", 500}}, 400));
  EXPECT_FALSE(mimalloc.allocated || mimalloc.difference);
  EXPECT_FALSE(allocator_figure(said({{"uordblks", 500}})).difference) << "nothing was counted";
  EXPECT_EQ(allocator_figure(said({{"uordblks", 0}}, 0)).difference, 0.0);
}

RecordingAccount recording_with(std::vector<AllocatorStats> stats, const std::string& allocator) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.front().allocator = allocator;
  recording.processes.front().allocator_stats = std::move(stats);
  return recording;
}

std::vector<std::string> lines_of(const RecordingAccount& recording) {
  return allocator_lines(build_view(recording, whole_life(recording)));
}

TEST(AllocatorLines, OfTheMomentWhenMostWasLive) {
  const auto recording = recording_with(
      {said({{"uordblks", 1000}}, 1000, 0, "start"), said({{"uordblks", 101 * kMiB}}, 100 * kMiB, 0, "peak"),
       said({{"uordblks", 3000}}, 1000, 0, "end")},
      "glibc");
  EXPECT_EQ(lines_of(recording), std::vector<std::string>{"pid 4711, 2.0 s, peak: glibc counts 101 MiB allocated, "
                                                          "whyrss 100 MiB live: +0.99 %"});
}

// Read at no other time, it says nothing of what the program did.
TEST(AllocatorLines, AnEmptyHeapAtTheStartIsNotSpokenOf) {
  EXPECT_TRUE(lines_of(recording_with({said({{"uordblks", 0}}, 0, 0, "start")}, "glibc")).empty());
  EXPECT_EQ(lines_of(recording_with({said({{"uordblks", 2 * kMiB}}, 2 * kMiB, 0, "start")}, "glibc")).size(), 1U);
}

TEST(AllocatorLines, ALargeDifferenceIsExplained) {
  const auto more = lines_of(recording_with({said({{"uordblks", 110 * kMiB}}, 100 * kMiB, 0)}, "glibc"));
  ASSERT_EQ(more.size(), 1U);
  EXPECT_NE(more[0].find("+9.09 % (glibc counts as in use what its threads' caches hold"), std::string::npos)
      << more[0];
  const auto less = lines_of(recording_with({said({{"stats.allocated", 90 * kMiB}}, 100 * kMiB, 0)}, "jemalloc"));
  ASSERT_EQ(less.size(), 1U);
  EXPECT_NE(less[0].find("-10.00 % (whyrss counts blocks that this allocator does not"), std::string::npos) << less[0];
}

TEST(AllocatorLines, WhatCannotBeCompared) {
  EXPECT_EQ(lines_of(recording_with({said({{"current_commit", 64 * kMiB}}, 60 * kMiB)}, "mimalloc")),
            std::vector<std::string>{
                "pid 4711, 2.0 s, peak: mimalloc has 64 MiB committed; what of it is allocated it does not count"});
  EXPECT_EQ(lines_of(recording_with({said({{"uordblks", 64 * kMiB}})}, "glibc")),
            std::vector<std::string>{"pid 4711, 2.0 s, peak: glibc counts 64 MiB allocated"});
  EXPECT_TRUE(lines_of(recording_with({}, "glibc")).empty());
}

TEST(AllocatorLines, OtherProcessesOnlyWhereBothDiffer) {
  RecordingAccount recording = literal::quickstart();
  for (ProcessAccount& process : recording.processes)
    process.allocator_stats = {said({{"uordblks", 100 * kMiB}}, 100 * kMiB, 0)};
  EXPECT_EQ(lines_of(recording).size(), 1U);
  for (int i = 0; i < 20; ++i) {
    ProcessAccount worker = recording.processes.back();
    worker.pid = 6000 + i;
    worker.allocator_stats = {said({{"uordblks", 200 * kMiB}}, 100 * kMiB, 0)};
    recording.processes.push_back(worker);
  }
  const auto lines = lines_of(recording);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines.back(), "16 more processes where both counts differ by over 2 %");
}

TEST(AllocatorJson, MomentsByName) {
  const auto recording =
      recording_with({said({{"uordblks", 10}}, 10, 0, "start"), said({{"uordblks", 40}}, 30, 0, "peak"),
                      said({{"uordblks", 80}}, 100, 0, "peak"), said({{"uordblks", 20}}, 20, 0, "snapshot"),
                      said({{"uordblks", 5}}, {}, {}, "end")},
                     "glibc");
  const View view = build_view(recording, whole_life(recording));
  const auto report = nlohmann::json::parse(render_json(view, find_verdicts(view), {}));
  const auto& stats = report["processes"][0]["allocator_stats"];
  EXPECT_EQ(stats["difference"], -0.2);
  EXPECT_EQ(stats["start"]["counted"], 10);
  EXPECT_EQ(stats["peak"]["allocated"], 80) << "the last peak is the highest";
  EXPECT_EQ(stats["peak"]["values"]["uordblks"], 80);
  EXPECT_EQ(stats["snapshots"].size(), 1U);
  EXPECT_TRUE(stats["end"]["counted"].is_null() && stats["end"]["difference"].is_null());
  EXPECT_TRUE(report["processes"][1]["allocator_stats"].is_null());
}

}  // namespace
}  // namespace whyrss::allocator_stats_test
