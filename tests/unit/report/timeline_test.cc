// Charts of memory over time, and what each phase added.
#include "report/render/timeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "literal_accounts.h"
#include "report/render/text.h"
#include "report/verdicts/verdict.h"
#include "report/view/build_view.h"
#include "support/text.h"

namespace whyrss::timeline_test {
namespace {

using literal::kMiB;

// One process: 10 MiB live soon after 1 s, 60 after 2 s, of which 40 are freed and kept after 3 s; it ends at 4 s.
RecordingAccount growing() {
  RecordingAccount recording;
  recording.info = literal::finished({"job"}, 4);
  ProcessAccount process = literal::python_process(10, {"job"});
  process.accounts = {literal::walk(1.02, {{Cause::heap_live, 10}}), literal::walk(2.02, {{Cause::heap_live, 60}}),
                      literal::walk(3.02, {{Cause::heap_live, 20}, {Cause::heap_retained, 40}})};
  for (const Account& walk : process.accounts)
    process.polls.push_back({.time_s = walk.time_s, .rss_bytes = walk.rss_bytes});
  process.ended_s = 4;
  recording.processes = {process};
  return recording;
}

std::string unindented(const std::string& text) {
  std::string out;
  for (const std::string& line : split(text, '\n')) out += line.substr(std::min<std::size_t>(2, line.size())) + "\n";
  return out;
}

std::string timeline(const RecordingAccount& recording, Interval interval) {
  const View view = build_view(recording, interval);
  const auto table = timeline_table(view, process_sections(view, find_verdicts(view)));
  return table ? unindented(table->text()) : "";
}

std::string phases(const RecordingAccount& recording, std::size_t top = 10) {
  const View view = build_view(recording, whole_life(recording));
  const auto table = phase_table(view, top);
  return table ? phase_title(view, top) + "\n" + unindented(table->text()) : "";
}

TEST(Sparkline, GoesFromNothingToTheLargest) {
  EXPECT_EQ(sparkline({0, 50, 100}), "▁▅█");
  EXPECT_EQ(sparkline({std::nullopt, 7, -7}), "·█▁");
  EXPECT_EQ(sparkline({0, 0}), "▁▁");
  EXPECT_EQ(sparkline({}), "");
}

TEST(Timeline, ShowsRssAndTheMainCauses) {
  // 48 columns of 1/12 s: what was known soon after 1, 2 and 3 s holds until the next is known.
  const auto repeat = [](int count, const std::string& block) {
    std::string text;
    for (int i = 0; i < count; ++i) text += block;
    return text;
  };
  const std::string text = timeline(growing(), {.from_s = 0, .to_s = 4});
  EXPECT_NE(text.find("10 RSS                          0.0  60.0  60.0  " + repeat(12, "·")), std::string::npos)
      << text;
  EXPECT_NE(text.find("  live heap                     0.0  60.0  20.0  " + repeat(12, "·") + repeat(12, "▂") +
                      repeat(13, "█") + repeat(11, "▃")),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  heap kept by the allocator    0.0  40.0  40.0"), std::string::npos) << text;
}

// Events went on after the last reading: nothing is known then.
TEST(Timeline, EndsWithTheRecordingOfAProcessWhoseCollectorWasKilled) {
  RecordingAccount recording = growing();
  recording.processes[0].ended_s.reset();
  recording.info.duration_s = 8;
  EXPECT_EQ(timeline(recording, {.from_s = 0, .to_s = 8}).find("·\n"), std::string::npos);  // whole: it lives on
  recording.info.complete = false;
  recording.info.incomplete_why = "the collector was killed";
  EXPECT_EQ(broken_off_s(recording, recording.processes[0]), 3.02);
  std::string dots;
  for (int i = 0; i < 29; ++i) dots += "·";
  const std::string text = timeline(recording, {.from_s = 0, .to_s = 8});
  EXPECT_NE(text.find("█" + dots + "\n"), std::string::npos) << text;
  recording.processes.push_back(recording.processes[0]);
  EXPECT_NE(timeline(recording, {.from_s = 0, .to_s = 8}).rfind("█" + dots + "\n"), std::string::npos);
  const View view = build_view(recording, whole_life(recording));
  const std::string report = render_short(view, {}, {});
  EXPECT_EQ(report.substr(0, report.find('\n')),
            "job (pid 10)   RSS +60 MiB in the 3.0 s that were recorded (then the collector was killed) = 40");
}

TEST(Timeline, OfAPartShowsThatPart) {
  const std::string text = timeline(growing(), {.from_s = 1.5, .to_s = 2.5});
  EXPECT_NE(text.find("from 1.5 s to 2.5 s"), std::string::npos) << text;
  EXPECT_NE(text.find("10 RSS           10.0  60.0  60.0"), std::string::npos) << text;
  EXPECT_EQ(text.find("kept by"), std::string::npos) << text;
}

TEST(Timeline, OfNothingIsNotShown) {
  EXPECT_EQ(timeline(growing(), {.from_s = 2, .to_s = 2}), "");
  RecordingAccount unwalked = growing();
  unwalked.processes[0].accounts.clear();
  EXPECT_EQ(timeline(unwalked, {.from_s = 0, .to_s = 4}), "");
}

TEST(Phases, EachCauseAddsUpToRss) {
  RecordingAccount recording = growing();
  EXPECT_EQ(phases(recording), "");
  recording.phases = {{"load", 1, 2}, {"free", 2, 3}};
  EXPECT_EQ(phases(recording),
            "Phases: growth of all processes, MiB\n"
            "phase  from s  lasts s   RSS  live heap  heap kept by the allocator  other causes  RSS at its peak\n"
            "load      1.0      1.0  50.0       50.0                         0.0           0.0             60.0\n"
            "free      2.0      1.0   0.0      -40.0                        40.0           0.0             60.0\n");
}

TEST(Phases, OfWhatNobodyReadAreNotKnown) {
  RecordingAccount recording = growing();
  recording.processes[0].accounts.clear();
  recording.processes[0].polls.clear();
  recording.phases = {{"load", 1, 2}};
  EXPECT_NE(phases(recording).find("load      1.0      1.0  not known     not known        not known\n"),
            std::string::npos)
      << phases(recording);
}

TEST(Phases, OfManyThoseThatMovedMostAreShownInTheirOrder) {
  RecordingAccount recording = growing();
  recording.phases = {{"quiet", 0.1, 0.2}, {"start", 0.5, 1.1}, {"load\x1b[2J", 1.1, 2.1}, {"free", 2.1, 3.1}};
  const std::string text = phases(recording, 2);
  EXPECT_NE(text.find("(the 2 of 4 that moved most)\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("quiet"), std::string::npos);
  EXPECT_LT(text.find("start"), text.find("load?[2J")) << text;  // nothing that a terminal obeys
}

// What is made and freed within it is no growth, and still what a machine must have.
TEST(Phases, TheirPeakIsNamedWhereNothingGrew) {
  RecordingAccount recording = growing();
  recording.processes[0].accounts.push_back(literal::walk(3.5, {{Cause::heap_live, 20}}));
  recording.phases = {{"eval", 1.5, 3.6}};
  EXPECT_NE(phases(recording).find("eval      1.5      2.1  10.0 "), std::string::npos) << phases(recording);
  EXPECT_NE(phases(recording).find("  60.0\n"), std::string::npos) << phases(recording);
}

TEST(Phases, OfOneNameAreToldApart) {
  RecordingAccount recording = growing();
  recording.phases = {{"train", 1, 2}, {"eval", 2, 3}, {"train", 3, 3.5}};
  const std::string text = phases(recording);
  EXPECT_NE(text.find("\ntrain#1     1.0 "), std::string::npos) << text;
  EXPECT_NE(text.find("\neval        2.0 "), std::string::npos) << text;
  EXPECT_NE(text.find("\ntrain#2     3.0 "), std::string::npos) << text;
  const auto all = parse_interval(recording, "train", "train");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->from_s, 1);
  EXPECT_EQ(all->to_s, 3.5);
  const auto second = parse_interval(recording, "train#2", "train#2");
  ASSERT_TRUE(second) << second.error();
  EXPECT_EQ(second->from_s, 3);
  EXPECT_EQ(second->to_s, 3.5);
  EXPECT_TRUE(second->from_phase && second->to_phase);
  EXPECT_EQ(count_phases(recording, "train"), 2U);
  EXPECT_EQ(count_phases(recording, "train#2"), 1U);
  for (const std::string none : {"train#0", "train#3", "train#", "train#2x", "train#-1", "#1", "eval#2"}) {
    const auto wrong = parse_interval(recording, none, "");
    ASSERT_FALSE(wrong) << none;
    EXPECT_NE(wrong.error().find("phases: train (train#1 to train#2), eval;"), std::string::npos) << wrong.error();
  }
  for (const bool from : {true, false}) {
    const auto before = parse_interval(recording, from ? "-1" : "", from ? "" : "-1");
    ASSERT_FALSE(before);
    EXPECT_EQ(before.error(),
              fmt::format("{} -1: before the recording began (0 s; it lasts 4.000 s)", from ? "--from" : "--to"));
  }
  recording.phases.push_back({"train#2", 0.5, 0.75});  // a name of its own comes first
  EXPECT_EQ(parse_interval(recording, "train#2", "")->from_s, 0.5);
}

TEST(Marks, AreListedWithTheirTimes) {
  RecordingAccount recording = growing();
  for (int i = 0; i < 4; ++i) recording.marks.push_back({"epoch", 0.5 + i});
  const View view = build_view(recording, {.from_s = 1, .to_s = 4});
  EXPECT_EQ(mark_lines(view, 2), (std::vector<std::string>{"1.500 s  epoch", "2.500 s  epoch", "and 1 more"}));
}

TEST(Marks, AreTimesForFromAndTo) {
  RecordingAccount recording = growing();
  recording.marks = {{"epoch", 1.5}, {"epoch", 2.5}};
  const auto interval = parse_interval(recording, "epoch", "epoch");
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->from_s, 1.5);  // from the first to the last of that name
  EXPECT_EQ(interval->to_s, 2.5);
  recording.phases = {{"load", 1, 2}};
  const auto wrong = parse_interval(recording, "epohc", "");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error(),
            "--from epohc: not seconds, a phase, a mark or \"teardown\" (the recording has phases: load; marks: epoch "
            "(epoch#1 to epoch#2))");
  EXPECT_EQ(parse_interval(recording, "epoch#2", "")->from_s, 2.5);
}

}  // namespace
}  // namespace whyrss::timeline_test
