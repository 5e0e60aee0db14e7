// What all formats show: states at times, peaks, sums that must hold.
#include <gtest/gtest.h>

#include "literal_accounts.h"
#include "report/view/build_view.h"

namespace whyrss::view_test {
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

// Its end is noticed 20 ms later, when its parent, which had waited for it, leaves as well.
TEST(View, WhoHadBegunToLeaveAndWasSeenNoMoreLeavesTheFamily) {
  RecordingAccount recording = literal::quickstart();
  ProcessAccount& child = recording.processes[1];
  const double left_s = child.accounts.back().time_s, end_s = left_s + 0.03;
  child.ended_s = left_s + 0.05;
  child.polls = {{.time_s = left_s - 0.1, .rss_bytes = 134 * kMiB}};
  const auto last_sum = [&] { return build_view(recording, {0, end_s}).family.rss_sum.last; };
  const std::int64_t with_child = last_sum();
  child.left_s = left_s;
  EXPECT_EQ(last_sum(), with_child - 134 * kMiB);
  child.polls.push_back({.time_s = end_s + 0.01, .rss_bytes = 134 * kMiB});  // takes its time to leave
  EXPECT_EQ(last_sum(), with_child);
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

TEST(View, PssIsReportedFromTheWalkWhereRssHasMovedSinceItWasRead) {
  RecordingAccount recording = literal::quickstart();
  const View then = build_view(recording, {0, 6});  // read at 0.2 s with 7 MiB, walked at 5 s
  EXPECT_NEAR(static_cast<double>(process(then, 4711).pss.last.value()), 646.7 * kMiB, 0.1 * kMiB);
  EXPECT_TRUE(process(then, 4711).pss.estimate());
  EXPECT_EQ(then.family.pss.last, process(then, 4711).pss.last);
  EXPECT_TRUE(then.family.pss.estimate());
  EXPECT_EQ(process(build_view(recording, {0, 9.81}), 4711).pss.last, 600 * kMiB);
  EXPECT_EQ(process(build_view(recording, {0, 9.81}), 4711).pss.first, 0);
}

TEST(View, PssIsTheReadingOfItsWalkNotALaterOne) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].totals = {literal::totals(0.2, 7, 4, 3), literal::totals(9.5, 651, 600, 590),
                                   literal::totals(9.9, 651, 150, 140)};  // others have mapped the same pages since
  EXPECT_EQ(process(build_view(recording, {0, 9.81}), 4711).pss.last, 600 * kMiB);
}

TEST(View, AReadingOfALaterWalkIsNotThatOfAnEarlierOne) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 5);
  ProcessAccount& process = recording.processes.emplace_back(literal::python_process(7, {"job"}));
  // A second process maps the same 200 MiB at 2.1 s.
  for (const double time_s : {1.05, 1.10, 2.30})
    process.accounts.push_back(literal::walk(time_s, {{Cause::file_cache, 200, kEmptyStack, "/big"}}));
  process.totals = {literal::totals(1.02, 200, 200, 200), literal::totals(2.31, 200, 100, 0)};
  EXPECT_EQ(build_view(recording, {0, 1.06}).processes[0].pss.last, 200 * kMiB);
  EXPECT_EQ(build_view(recording, {0, 2.20}).processes[0].pss.last, 200 * kMiB);
  EXPECT_EQ(build_view(recording, {0, 2.40}).processes[0].pss.last, 100 * kMiB);
}

// Three share 300 MiB and end one right after the other: each that is read last has what the others have left.
TEST(View, SiblingsThatEndTogetherCountOnceInThePss) {
  RecordingAccount recording;
  recording.info = literal::finished({"pool"}, 5);
  for (int i = 0; i < 3; ++i) {
    ProcessAccount& process = recording.processes.emplace_back(literal::python_process(7 + i, {"pool"}));
    process.accounts = {literal::walk(1, {{Cause::file_cache, 300, kEmptyStack, "/big", 0}}),
                        literal::walk(4 + 0.01 * i, {{Cause::file_cache, 300, kEmptyStack, "/big", 0}})};
    process.totals = {literal::totals(1.01, 300, 100, 0), literal::totals(4.005 + 0.01 * i, 300, 300 / (3 - i), 0)};
    process.high_water_bytes = 300 * kMiB;
    process.teardown_s = process.left_s = 4.005 + 0.01 * i;
    process.ended_s = 4.1;  // when it was noticed
  }
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(view.family.pss.peak, 300 * kMiB);
  EXPECT_EQ(view.family.pss.last, 300 * kMiB);  // the last of them
  EXPECT_EQ(view.family.rss_sum.peak, 900 * kMiB);
  EXPECT_EQ(view.family.accounting.peak->pss, 300 * kMiB);
  recording.processes[0].teardown_s = recording.processes[0].left_s = std::nullopt;  // it goes on beside the others
  recording.processes[0].ended_s.reset();
  EXPECT_EQ(build_view(recording, whole_life(recording)).family.pss.peak, 400 * kMiB);
}

// Two have a file, a third one that has not is read late: after they left, which says nothing of the time before.
TEST(View, WhoIsReadAfterOthersHaveLeftDoesNotTakeThemOut) {
  RecordingAccount recording;
  recording.info = literal::finished({"pool"}, 5);
  for (int i = 0; i < 2; ++i) {
    ProcessAccount& process = recording.processes.emplace_back(literal::python_process(7 + i, {"pool"}));
    process.accounts = {literal::walk(2, {{Cause::file_cache, 200, kEmptyStack, "/big", 0}})};
    process.totals = {literal::totals(2.01, 200, 100, 0)};
    process.left_s = 3.3;
    process.ended_s = 3.4;
  }
  ProcessAccount& idle = recording.processes.emplace_back(literal::python_process(6, {"pool"}));
  idle.accounts = {literal::walk(1, {{Cause::anonymous, 10}}), literal::walk(3, {{Cause::anonymous, 11}})};
  idle.totals = {literal::totals(1.01, 10, 10, 10), literal::totals(3.5, 11, 11, 11)};
  const auto last = [&recording](double time_s) { return build_view(recording, {0, time_s}).family.pss.last; };
  EXPECT_EQ(last(3.1), 210 * kMiB);
  EXPECT_EQ(last(3.6), 11 * kMiB);
}

TEST(View, WhoComesToShareCountsOnceInThePss) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 5);
  for (const double joined_s : {1.0, 2.0}) {
    ProcessAccount& process = recording.processes.emplace_back(literal::python_process(7, {"job"}));
    process.accounts = {literal::walk(joined_s, {{Cause::file_cache, 200, kEmptyStack, "/big"}})};
    process.totals = {literal::totals(joined_s + 0.01, 200, joined_s < 2 ? 200 : 100, 0)};
  }
  recording.processes[0].totals.push_back(literal::totals(2.3, 200, 100, 0));
  EXPECT_EQ(build_view(recording, whole_life(recording)).family.pss.peak, 200 * kMiB);
}

// The parent was walked and read last before it forked: then all of it was its own.
TEST(View, WhatAParentSharesWithChildrenBornSinceItWasReadCountsOnceInThePss) {
  RecordingAccount recording;
  recording.info = literal::finished({"pool"}, 3);
  ProcessAccount& parent = recording.processes.emplace_back(literal::python_process(7, {"pool"}));
  parent.accounts = {literal::walk(1, {{Cause::heap_live, 300}}), literal::walk(2, {{Cause::heap_live, 300}})};
  parent.totals = {literal::totals(1.01, 300, 300, 300), literal::totals(2.01, 300, 150, 50)};
  for (int i = 0; i < 2; ++i) {
    ProcessAccount& worker = recording.processes.emplace_back(literal::python_process(8 + i, {"pool"}));
    worker.parent = 7;
    worker.born_s = 1.05;
    worker.accounts = {literal::walk(1.5, {{Cause::fork_shared, 240, kEmptyStack, "", 0}, {Cause::fork_cow, 60}})};
    worker.totals = {literal::totals(1.51, 300, 140, 60)};
  }
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(view.family.accounting.peak->pss, 430 * kMiB);
  EXPECT_EQ(view.family.pss.peak, 430 * kMiB);
}

// It was read for the first time when it had forked: before that all of it was its own.
TEST(View, AReadingFromAfterAForkIsNoneOfTheStateBeforeIt) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 3);
  ProcessAccount& parent = recording.processes.emplace_back(literal::python_process(7, {"job"}));
  parent.accounts = {literal::walk(0.2, {{Cause::heap_live, 300}}),
                     literal::walk(1.2, {{Cause::heap_live, 300, kEmptyStack, "", 0}})};
  parent.totals = {literal::totals(1.1, 300, 150, 0)};
  ProcessAccount& child = recording.processes.emplace_back(literal::python_process(8, {"job"}));
  child.parent = 7;
  child.born_by_fork = true;
  child.born_s = 1;
  child.accounts = {literal::walk(1.25, {{Cause::fork_shared, 300, kEmptyStack, "", 0}})};
  child.totals = {literal::totals(1.26, 300, 150, 0)};
  const View before = build_view(recording, {0, 0.9});
  EXPECT_EQ(process(before, 7).pss.last, 300 * kMiB);
  EXPECT_TRUE(process(before, 7).pss.estimate());
  EXPECT_EQ(before.family.accounting.peak->pss, 300 * kMiB);
  EXPECT_EQ(build_view(recording, {0, 1.5}).family.pss.last, 300 * kMiB);
}

// Two workers copy 100 MiB each of what they share with their parent. Nothing of the parent moves but its PSS, and it
// was read before that.
TEST(View, AReadingFromBeforeRelativesCopiedIsNoneOfTheStateAfterIt) {
  RecordingAccount recording;
  recording.info = literal::finished({"pool"}, 5);
  ProcessAccount& parent = recording.processes.emplace_back(literal::python_process(7, {"pool"}));
  parent.accounts = {literal::walk(1, {{Cause::heap_live, 300, kEmptyStack, "", 0}})};
  parent.totals = {literal::totals(1.01, 300, 100, 0)};
  for (int i = 0; i < 2; ++i) {
    ProcessAccount& worker = recording.processes.emplace_back(literal::python_process(8 + i, {"pool"}));
    worker.parent = 7;
    worker.born_by_fork = true;
    worker.born_s = 0.9;
    worker.accounts = {literal::walk(1.1, {{Cause::fork_shared, 300, kEmptyStack, "", 0}}),
                       literal::walk(1.6, {{Cause::fork_shared, 200, kEmptyStack, "", 0}, {Cause::fork_cow, 100}})};
    worker.accounts.back().estimated_from_s = 1.1;
    worker.totals = {literal::totals(1.11, 300, 100, 0), literal::totals(2, 300, 167, 100)};
  }
  const auto family = [&](double time_s) { return build_view(recording, {time_s, time_s}).family.pss; };
  const auto of_parent = [&](double time_s) { return process(build_view(recording, {time_s, time_s}), 7).pss; };
  EXPECT_EQ(family(1.5).last, 300 * kMiB);
  EXPECT_FALSE(family(1.5).estimate());
  EXPECT_TRUE(family(2.1).estimate());
  EXPECT_TRUE(of_parent(2.1).estimate());
  // The next reading tells of it as well, and more than the one before.
  recording.processes[0].totals.push_back(literal::totals(2.5, 300, 167, 100));
  EXPECT_EQ(family(2.1).last, 501 * kMiB);
  EXPECT_TRUE(family(2.1).estimate());
  EXPECT_EQ(of_parent(1.5).last, 100 * kMiB);
  EXPECT_FALSE(of_parent(1.5).estimate());
  EXPECT_EQ(family(2.6).last, 501 * kMiB);
  EXPECT_FALSE(family(2.6).estimate());
  // But not where the parent has forked once more by then.
  ProcessAccount late = recording.processes[2];
  late.pid = 10;
  late.born_s = 2.3;
  late.accounts = {literal::walk(2.6, {{Cause::fork_shared, 300, kEmptyStack, "", 0}})};
  late.totals.clear();
  recording.processes.push_back(late);
  EXPECT_EQ(of_parent(2.1).last, 100 * kMiB);
  EXPECT_TRUE(of_parent(2.1).estimate());
}

// Both moments were read, and no RSS has moved between them: one worker had copied but 80 MiB at the first.
TEST(View, OfMomentsThatWereReadTheOneWithMorePssIsThePeak) {
  RecordingAccount recording;
  recording.info = literal::finished({"pool"}, 5);
  ProcessAccount& parent = recording.processes.emplace_back(literal::python_process(7, {"pool"}));
  parent.accounts = {literal::walk(1, {{Cause::heap_live, 300, kEmptyStack, "", 0}})};
  parent.totals = {literal::totals(1.52, 300, 166, 80), literal::totals(3.1, 300, 167, 100)};
  for (int i = 0; i < 2; ++i) {
    ProcessAccount& worker = recording.processes.emplace_back(literal::python_process(8 + i, {"pool"}));
    worker.parent = 7;
    worker.born_by_fork = true;
    worker.born_s = 0.9;
    const auto at = [](double time_s, std::int64_t copied) {
      return literal::walk(time_s, {{Cause::fork_shared, 300 - copied, kEmptyStack, "", 0}, {Cause::fork_cow, copied}});
    };
    const std::int64_t early = i == 0 ? 80 : 100;
    worker.accounts = {at(1.5, early), at(3, 100)};
    worker.totals = {literal::totals(1.51, 300, 160, early), literal::totals(3, 300, 167, 100)};
  }
  const AccountingMoment& peak = build_view(recording, whole_life(recording)).family.accounting.peak.value();
  EXPECT_EQ(peak.pss, 501 * kMiB);
  EXPECT_FALSE(peak.estimate);
}

// The parent copies 100 MiB of what its only child shares with it: of the parent itself walks tell.
TEST(View, AReadingFromBeforeTheParentCopiedIsAnEstimate) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 5);
  recording.processes = {literal::python_process(7, {"job"}), literal::python_process(8, {"job"})};
  ProcessAccount &parent = recording.processes[0], &child = recording.processes[1];
  parent.accounts = {literal::walk(1, {{Cause::heap_live, 300, kEmptyStack, "", 0}})};
  parent.totals = {literal::totals(1.01, 300, 150, 0)};
  child.parent = 7;
  child.accounts = {literal::walk(1.1, {{Cause::fork_shared, 300, kEmptyStack, "", 0}})};
  child.totals = {literal::totals(1.11, 300, 150, 0)};
  const auto of_child = [&](double time_s) { return process(build_view(recording, {time_s, time_s}), 8).pss; };
  EXPECT_FALSE(of_child(2).estimate());
  parent.sharing = {{.time_s = 1.5, .copied_bytes = 100 * kMiB}};
  EXPECT_TRUE(of_child(2).estimate());
  EXPECT_FALSE(of_child(1.4).estimate());
}

// Each was read when the others had mapped less of it.
TEST(View, PagesOfOneFileAreNoMoreThanTheFile) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 5);
  for (const double time_s : {1.0, 1.1, 1.2}) {
    ProcessAccount& process = recording.processes.emplace_back(literal::python_process(7, {"job"}));
    process.accounts = {
        literal::walk(time_s, {{Cause::anonymous, 10}, {Cause::file_cache, 200, kEmptyStack, "/big", 0}})};
    process.totals = {literal::totals(time_s + 0.01, 210, 130, 10)};
    process.totals.front().pss_anonymous_bytes = 10 * kMiB;
    process.totals.front().pss_file_bytes = 120 * kMiB;
    process.totals.front().pss_shmem_bytes = 0;
  }
  EXPECT_EQ(build_view(recording, whole_life(recording)).family.pss.last, 390 * kMiB);
  recording.processes[1].file_sizes = {{.time_s = 1, .files = {{"/big", {.size_bytes = 220 * kMiB}}}}};
  EXPECT_NEAR(static_cast<double>(*build_view(recording, whole_life(recording)).family.pss.last), 250. * kMiB, 8192);
}

// It grows to 200 MiB and stays there for seconds, then it gives most back. What it maps alone is 4 MiB less than RSS.
ProcessAccount plateau(int pid) {
  ProcessAccount process = literal::python_process(pid, {"job"});
  const auto walk = [](double time_s, std::int64_t mib) {
    return literal::walk(time_s,
                         {{Cause::anonymous, mib - 4}, {Cause::file_cache, 4, kEmptyStack, "/usr/lib/libc.so.6", 0}});
  };
  process.accounts = {walk(0.05, 6), walk(0.1, 60), walk(0.3, 200), walk(4, 20)};
  process.totals = {literal::totals(0.06, 6, 3, 2), literal::totals(4.01, 20, 17, 16)};
  for (const auto& [time_s, mib] : {std::pair{0.05, 6}, {0.1, 60}, {0.2, 200}, {2.0, 200}, {3.9, 20}})
    process.polls.push_back({time_s, mib * kMiB, 4 * kMiB});
  process.high_water_bytes = 200 * kMiB;
  return process;
}

TEST(View, APlateauThatNobodyReadIsReportedFromItsWalk) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 5);
  recording.processes = {plateau(7)};
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(view.family.pss.peak, 197 * kMiB);  // libraries count as they were read: a quarter of 4 MiB
  EXPECT_EQ(view.family.pss.last, 17 * kMiB);
  EXPECT_TRUE(view.family.pss.estimate());
  const AccountingMoment& peak = view.family.accounting.peak.value();
  EXPECT_TRUE(peak.estimate);
  EXPECT_EQ(peak.rss, 200 * kMiB);
  EXPECT_EQ(peak.pss, 197 * kMiB);
  EXPECT_EQ(peak.uss, 196 * kMiB);
  EXPECT_EQ(peak.shared, 4 * kMiB);
  EXPECT_EQ(view.family.accounting.rss_sum, peak.rss);
}

TEST(View, AReadingOfThePlateauSpeaksForAllOfIt) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 30);
  recording.processes = {plateau(7), plateau(8)};
  ProcessAccount& late = recording.processes[1];  // it grows while the other one rests
  for (Account& walk : late.accounts) walk.time_s += 10;
  for (RssPoint& poll : late.polls) poll.time_s += 10;
  late.totals = {literal::totals(11.5, 200, 198, 196)};
  late.born_s = 10;
  ProcessAccount& rests = recording.processes[0];
  rests.accounts.pop_back();
  rests.polls.pop_back();
  rests.totals = {literal::totals(0.06, 6, 3, 2), literal::totals(1.1, 200, 198, 196)};
  const View view = build_view(recording, whole_life(recording));
  const AccountingMoment& peak = view.family.accounting.peak.value();
  EXPECT_FALSE(peak.estimate);
  EXPECT_EQ(peak.rss, 400 * kMiB);
  EXPECT_EQ(peak.pss, 396 * kMiB);
  EXPECT_GE(view.family.pss.peak, peak.pss);
}

TEST(View, AShortPeakBetweenWalksIsReportedFromPolls) {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 5);
  recording.processes = {plateau(7)};
  ProcessAccount& process = recording.processes[0];
  process.polls.push_back({4.5, 70 * kMiB, 4 * kMiB});
  const View view = build_view(recording, {4.2, 5});
  EXPECT_EQ(view.family.accounting.rss_sum, 70 * kMiB);
  EXPECT_EQ(view.family.accounting.peak->pss, 67 * kMiB);
  EXPECT_EQ(view.family.pss.peak, 67 * kMiB);
}

TEST(View, CopiesCountInTheIntervalOnly) {
  const RecordingAccount recording = literal::quickstart();
  EXPECT_EQ(process(build_view(recording, {0, 9.81}), 4712).copied, 124 * kMiB);
  EXPECT_EQ(process(build_view(recording, {7.2, 9.81}), 4712).copied, 120 * kMiB);
  const View none = build_view(recording, {9.5, 9.81});
  EXPECT_EQ(process(none, 4712).copied, 0);
  EXPECT_TRUE(process(none, 4712).cow_sites.empty());
}

TEST(View, SharedMemoryThatLostItsSharersIsReported) {
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

// Of a phase each process is known from the walks nearest to its edges, which may come a moment later; of seconds, it
// is not.
// Workers that end right after a phase: the last walk of one comes when another has gone.
TEST(Interval, WhoIsThereWhenAPhaseEndsCounts) {
  RecordingAccount recording;
  recording.info = literal::finished({"pool"}, 5);
  recording.phases = {{"epoch", 1, 2}};
  for (const double left_s : {2.01, 2.05}) {
    ProcessAccount& worker = recording.processes.emplace_back(literal::python_process(7, {"pool"}));
    worker.accounts = {literal::walk(1, {{Cause::anonymous, 100}}), literal::walk(1.9, {{Cause::anonymous, 100}}),
                       literal::walk(left_s, {{Cause::anonymous, 100}})};
    worker.left_s = left_s;
    worker.ended_s = left_s + 0.01;
  }
  EXPECT_EQ(build_view(recording, *parse_interval(recording, "epoch", "epoch")).family.rss_sum.last, 200 * kMiB);
}

TEST(Interval, ReachesTheWalksThatAPhaseAskedFor) {
  RecordingAccount recording = literal::quiet();
  recording.phases = {{"epoch", 1, 2}};
  recording.info.duration_s = 5;
  ProcessAccount& process = recording.processes[0];
  process.born_s = 0;
  process.ended_s = 5;
  process.accounts.clear();
  for (const auto& [time_s, mib] :
       std::vector<std::pair<double, std::int64_t>>{{0.5, 10}, {1.01, 20}, {1.9, 30}, {2.05, 40}, {2.2, 50}, {4, 60}})
    process.accounts.push_back(literal::walk(time_s, {{Cause::anonymous, mib}}));
  const auto growth = [&recording](const char* from, const char* to) {
    return build_view(recording, *parse_interval(recording, from, to)).processes[0].rss.growth();
  };
  EXPECT_EQ(growth("epoch", "epoch"), 20 * kMiB);
  EXPECT_EQ(growth("1", "2"), 20 * kMiB);
  EXPECT_EQ(growth("epoch", "2"), 10 * kMiB);
  EXPECT_EQ(growth("1", "epoch"), 30 * kMiB);
  recording.phases = {{"epoch", 2, 3}};  // nobody looked near its end
  EXPECT_EQ(growth("epoch", "epoch"), 10 * kMiB);
  process.born_s = 1.95;  // what was born after an edge was nothing before
  recording.phases = {{"epoch", 1.94, 3}};
  process.accounts.erase(process.accounts.begin(), process.accounts.begin() + 3);
  EXPECT_EQ(growth("epoch", "epoch"), 50 * kMiB);
}

// A main process that takes itself down at 3 s, and a worker that did so at 2 s.
RecordingAccount torn_down() {
  RecordingAccount recording = literal::quiet();
  recording.info.duration_s = 4;
  recording.phases = {{"all", 1, 3.5}};
  recording.processes.resize(2, recording.processes[0]);
  for (const auto& [index, teardown_s] : {std::pair{0U, 3.0}, std::pair{1U, 2.0}}) {
    ProcessAccount& process = recording.processes[index];
    process.pid = 100 + static_cast<int>(index);
    process.born_s = 0;
    process.ended_s = teardown_s + 0.5;
    process.teardown_s = teardown_s;
    process.accounts = {literal::walk(1, {{Cause::heap_live, 50}}), literal::walk(teardown_s, {{Cause::heap_live, 80}}),
                        literal::walk(teardown_s + 0.25, {{Cause::heap_live, 10}})};
  }
  return recording;
}

TEST(Interval, TeardownIsOneOfItsOwn) {
  const RecordingAccount recording = torn_down();
  const auto lasts = [&](const char* from, const char* to) {
    const View view = build_view(recording, *parse_interval(recording, from, to));
    return std::vector{view.processes[0].rss.first / kMiB, view.processes[0].rss.last / kMiB,
                       view.processes[1].rss.first / kMiB, view.processes[1].rss.last / kMiB};
  };
  using Lasts = std::vector<std::int64_t>;
  EXPECT_EQ(parse_interval(recording, "", "")->to_s, 3);
  EXPECT_EQ(lasts("", ""), (Lasts{0, 80, 0, 80}));
  EXPECT_EQ(lasts("1", "teardown"), (Lasts{50, 80, 50, 80}));
  EXPECT_EQ(lasts("teardown", ""), (Lasts{80, 10, 80, 10}));
  EXPECT_EQ(lasts("", "4"), (Lasts{0, 10, 0, 10}));      // as asked for
  EXPECT_EQ(lasts("3.1", ""), (Lasts{80, 10, 10, 10}));  // nothing else is left
  EXPECT_EQ(lasts("all", "all"), (Lasts{50, 80, 50, 80}));
}

TEST(Interval, WithoutATeardown) {
  RecordingAccount recording = torn_down();
  for (ProcessAccount& process : recording.processes) process.teardown_s.reset();
  EXPECT_FALSE(parse_interval(recording, "teardown", "").ok());
  EXPECT_EQ(parse_interval(recording, "", "")->to_s, 3.5);
  recording.phases = {{"teardown", 1, 2}};  // the program's own word
  EXPECT_EQ(parse_interval(recording, "teardown", "teardown")->to_s, 2);
}

TEST(View, PeakAndEndHaveTheirMoments) {
  const View view = build_view(torn_down(), {.from_s = 0, .to_s = 4});
  EXPECT_EQ(view.processes[0].at_peak->time_s, 3);
  EXPECT_EQ(view.processes[0].at_last->time_s, 3.25);
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
}  // namespace whyrss::view_test
