// What all formats show: states at times, peaks, sums that must hold.
#include "report/view.h"

#include <gtest/gtest.h>

#include "literal_accounts.h"

namespace whyrss {
namespace {

using literal::kMiB;

const ProcessView& process(const View& view, int pid) {
  for (const ProcessView& candidate : view.processes)
    if (candidate.account->pid == pid) return candidate;
  throw std::out_of_range("no such pid");
}

void expect_conserved(const View& view) {
  for (const ProcessView& shown : view.processes) {
    std::int64_t first = 0, last = 0, at_peak = 0, uss = 0;
    for (const CauseView& cause : shown.causes) {
      first += cause.rss.first;
      last += cause.rss.last;
      at_peak += cause.at_peak;
      uss += cause.uss_growth;
      std::int64_t sites = 0, resident = 0;
      for (const SiteView& site : cause.sites) {
        sites += site.growth;
        resident += site.resident;
      }
      EXPECT_EQ(sites, cause.rss.growth()) << info(cause.cause).slug;
      EXPECT_EQ(resident, cause.rss.last) << info(cause.cause).slug;
    }
    EXPECT_EQ(first, shown.rss.first);
    EXPECT_EQ(last, shown.rss.last);
    EXPECT_EQ(at_peak, shown.rss.peak);
    EXPECT_EQ(uss, shown.uss.growth());
  }
}

TEST(View, SumsHoldInEveryInterval) {
  const RecordingAccount recording = literal::quickstart();
  for (const double from_s : {0.0, 0.2, 3.0, 7.05, 7.1, 9.4, 9.81})
    for (const double to_s : {0.0, 0.2, 5.0, 7.2, 9.45, 9.81})
      if (from_s <= to_s) expect_conserved(build_view(recording, {from_s, to_s}));
}

TEST(View, WholeLifeStartsAtNothing) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording));
  EXPECT_DOUBLE_EQ(view.interval.to_s, 9.81);
  const ProcessView& main = process(view, 4711);
  EXPECT_EQ(main.rss.first, 0);
  EXPECT_EQ(main.rss.last, 651 * kMiB);
  EXPECT_EQ(main.find(Cause::heap_live)->rss.peak, 133 * kMiB);
  EXPECT_EQ(main.find(Cause::heap_live)->at_peak, 130 * kMiB);
  EXPECT_FALSE(main.find(Cause::heap_live)->estimate);
  EXPECT_FALSE(main.find(Cause::file_cache)->estimate);
  EXPECT_EQ(main.find(Cause::anonymous), nullptr);
}

TEST(View, EndedProcessKeepsItsLastWalkButLeavesTheFamily) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(process(view, 4712).rss.last, 134 * kMiB);
  EXPECT_EQ(view.family.rss_sum.last, 651 * kMiB);                  // the workers ended before
  EXPECT_EQ(view.family.rss_sum.peak, (650 - 4 + 4 + 268) * kMiB);  // walk of 5 s beside both workers' last
  EXPECT_EQ(view.family.pss.last, 600 * kMiB);
}

TEST(View, IntervalStartsFromTheWalkInForce) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, {6, 9.81});
  const ProcessView& main = process(view, 4711);
  EXPECT_EQ(main.rss.first, 650 * kMiB);  // the walk at 5 s
  EXPECT_EQ(main.rss.growth(), kMiB);
  EXPECT_EQ(main.find(Cause::heap_live)->rss.growth(), -3 * kMiB);
  EXPECT_EQ(process(view, 4712).rss.first, 0);
}

TEST(View, UnbornProcessIsZeroNotUnknown) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, {0, 6});
  EXPECT_EQ(process(view, 4712).rss.last, 0);
  EXPECT_EQ(process(view, 4712).pss.last, 0);
  EXPECT_TRUE(process(view, 4712).causes.empty());
}

TEST(View, PssIsNullWithoutAReadingNearItsWalk) {
  const RecordingAccount recording = literal::quickstart();
  EXPECT_EQ(process(build_view(recording, {0, 6}), 4711).pss.last, std::nullopt);  // read at 0.2 s, walked at 5 s
  EXPECT_EQ(process(build_view(recording, {0, 9.81}), 4711).pss.last, 600 * kMiB);
  EXPECT_EQ(process(build_view(recording, {0, 9.81}), 4711).pss.first, 0);
}

TEST(View, CopiesCountInTheIntervalOnly) {
  const RecordingAccount recording = literal::quickstart();
  EXPECT_EQ(process(build_view(recording, {0, 9.81}), 4712).copied, 124 * kMiB);
  EXPECT_EQ(process(build_view(recording, {7.2, 9.81}), 4712).copied, 120 * kMiB);
  const View none = build_view(recording, {9.5, 9.81});
  EXPECT_EQ(process(none, 4712).copied, 0);
  EXPECT_TRUE(process(none, 4712).cow_sites.empty());
}

TEST(View, SharedMemoryThatLostItsSharersIsTold) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[1].accounts.push_back(literal::walk(9.35, {{Cause::fork_shared, 6, kEmptyStack, "", 4}}));
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(process(view, 4712).find(Cause::fork_shared)->sole_owner, 4 * kMiB);
  EXPECT_EQ(process(view, 4711).find(Cause::heap_live)->sole_owner, std::nullopt);
}

TEST(View, NeverWalkedProcessHasNoFigures) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.push_back(literal::python_process(99, {"/bin/true"}));
  recording.processes.back().ended_s = 1.1;
  const View view = build_view(recording, whole_life(recording));
  EXPECT_FALSE(process(view, 99).walked);
  EXPECT_EQ(process(view, 99).pss.last, std::nullopt);
  EXPECT_EQ(view.family.pss.last, 600 * kMiB);  // the others' sum is still known
}

TEST(View, OneProcessAlone) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording), 4713);
  ASSERT_EQ(view.processes.size(), 1U);
  EXPECT_EQ(view.family.rss_sum.last, 651 * kMiB);  // still of all
}

TEST(View, EmptyRecording) {
  const RecordingAccount recording;
  const View view = build_view(recording, whole_life(recording));
  EXPECT_TRUE(view.processes.empty());
  EXPECT_EQ(view.family.rss_sum.peak, 0);
}

TEST(Interval, SecondsAndPhases) {
  const RecordingAccount recording = literal::quickstart();
  const auto seconds = parse_interval(recording, "1.5", "7");
  ASSERT_TRUE(seconds.ok());
  EXPECT_DOUBLE_EQ(seconds->from_s, 1.5);
  EXPECT_DOUBLE_EQ(seconds->to_s, 7);
  const auto phases = parse_interval(recording, "load", "work");
  ASSERT_TRUE(phases.ok());
  EXPECT_DOUBLE_EQ(phases->from_s, 0.1);
  EXPECT_DOUBLE_EQ(phases->to_s, 9.6);
  EXPECT_DOUBLE_EQ(parse_interval(recording, "", "1e9")->to_s, 9.81);
}

TEST(Interval, RepeatedPhaseSpansAll) {
  RecordingAccount recording = literal::quickstart();
  recording.phases = {{"epoch", 1, 2}, {"epoch", 3, 4}};
  const auto interval = parse_interval(recording, "epoch", "epoch");
  ASSERT_TRUE(interval.ok());
  EXPECT_DOUBLE_EQ(interval->from_s, 1);
  EXPECT_DOUBLE_EQ(interval->to_s, 4);
}

TEST(Interval, NonsenseIsExplained) {
  const RecordingAccount recording = literal::quickstart();
  EXPECT_NE(parse_interval(recording, "lunch", "").error().find("load, work"), std::string::npos);
  EXPECT_FALSE(parse_interval(recording, "nan", "").ok());
  EXPECT_FALSE(parse_interval(recording, "5", "4").ok());
  EXPECT_FALSE(parse_interval(recording, "20", "").ok());
  EXPECT_FALSE(parse_interval(recording, "1.5x", "").ok());
}

}  // namespace
}  // namespace whyrss
