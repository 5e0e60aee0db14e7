// What is said of memory that grows slowly beside much that does not, and of the innocent that look alike.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "literal_accounts.h"
#include "report/verdicts/verdict.h"
#include "report/view/build_view.h"

namespace whyrss::trend_test {
namespace {

using literal::kMiB;

struct Lines {
  StackTable stacks;
  StackId load = literal::python_stack(stacks, "/home/u/a.py", 2, "load");
  StackId leak = literal::python_stack(stacks, "/home/u/a.py", 5, "leak");
  std::array<StackId, 6> more{};

  Lines() {
    for (std::size_t i = 0; i < more.size(); ++i)
      more.at(i) = literal::python_stack(stacks, "/home/u/a.py", 11 + static_cast<int>(i), "f");
  }
};

// MiB of a line at a time.
using Course = std::function<double(double time_s)>;

struct Program {
  double duration_s = 60;
  Course load, leak;
  double walk_s = 2;
  double standard_error_mib = 0;  // of each line at each walk
  Course other = [](double) { return 0; };
  Course untouched = [](double) { return 0; };  // of the blocks of `leak`
  std::vector<Course> more{};                   // of the lines a.py:11 and after it
};

RecordingAccount seen(const Lines& lines, const Program& program) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, program.duration_s);
  recording.stacks = lines.stacks;
  ProcessAccount process = literal::python_process(10, {"prog"});
  for (double time_s = 0; time_s <= program.duration_s; time_s += program.walk_s) {
    Account account = literal::walk(time_s, {});
    const auto add = [&](Cause cause, StackId stack, double mib) {
      const auto bytes = static_cast<std::int64_t>(mib * static_cast<double>(kMiB));
      if (bytes == 0) return;
      account.slices.open().push_back({{cause, stack, ""}, bytes, bytes});
      account.slices.open().back().variance = std::pow(program.standard_error_mib * static_cast<double>(kMiB), 2);
      account.rss_bytes += bytes;
    };
    add(Cause::heap_live, lines.load, program.load(time_s));
    add(Cause::heap_live, lines.leak, program.leak(time_s));
    if (!account.slices.empty())
      account.slices.open().back().untouched_bytes =
          std::llround(program.untouched(time_s) * static_cast<double>(kMiB));
    for (std::size_t i = 0; i < program.more.size(); ++i) add(Cause::heap_live, lines.more[i], program.more[i](time_s));
    add(Cause::anonymous, kEmptyStack, program.other(time_s));
    process.accounts.push_back(account);
  }
  recording.processes.push_back(process);
  return recording;
}

Verdict heap_verdict(const RecordingAccount& recording) {
  for (const Verdict& verdict : find_verdicts(build_view(recording, whole_life(recording))))
    if (verdict.id == "heap-growth") return verdict;
  return {};
}

std::string reported(const Lines& lines, const Program& program) {
  const Verdict verdict = heap_verdict(seen(lines, program));
  return verdict.headline.empty() ? "" : std::string(slug(verdict.severity)) + ": " + verdict.headline;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Loads so much within the first seconds.
Course loads(double mib, double within_s = 2) {
  return [=](double time_s) { return mib * std::min(1.0, time_s / within_s); };
}
Course grows(double mib_per_s, double from_s = 2) {
  return [=](double time_s) { return std::max(0.0, mib_per_s * (time_s - from_s)); };
}
double nothing(double /*time_s*/) { return 0; }

TEST(SlowGrowth, ALeakBesideALoadIsReportedWithItsLine) {
  const Lines lines;
  const Verdict verdict = heap_verdict(seen(lines, {.duration_s = 16, .load = loads(284), .leak = grows(0.7)}));
  EXPECT_EQ(verdict.headline,
            "294 MiB live Python objects (made at a.py:2 in load), still growing at the end by 717 KiB/s at a.py:5 in "
            "leak");
  EXPECT_EQ(verdict.severity, Severity::info);  // a data set may take as long
  EXPECT_EQ(verdict.evidence["trend"]["kind"], "growing");
  EXPECT_EQ(verdict.evidence["trend"]["growing_lines"][0]["line"], "a.py:5 in leak");
  EXPECT_EQ(verdict.evidence["trend"]["growing_lines"].size(), 1U);
  EXPECT_EQ(
      verdict.advice,
      "From 2.0 s on it grew evenly to the end, by 9.8 MiB, as a leak does: look for what keeps it from a.py:5 in "
      "leak on: a list or cache that only grows, or a reference cycle that gc has not collected.");
}

TEST(SlowGrowth, ForOverAMinuteItIsAWarning) {
  const Lines lines;
  EXPECT_EQ(reported(lines, {.duration_s = 74, .load = loads(284), .leak = grows(0.7)}),
            "warning: 334 MiB live Python objects (most made at a.py:2 in load: 284 MiB), still growing at the end by "
            "717 KiB/s at a.py:5 in leak");
  EXPECT_EQ(reported(lines, {.duration_s = 62, .load = loads(92), .leak = grows(1.3)}),
            "warning: 170 MiB live Python objects (most made at a.py:2 in load: 92 MiB, 78 MiB at a.py:5 in leak), "
            "still growing at the end by "
            "1.3 MiB/s at a.py:5 in leak");
  // 5 MiB in a minute may be anything.
  EXPECT_TRUE(reported(lines, {.duration_s = 74, .load = loads(284), .leak = grows(0.07)}).starts_with("info: "));
}

TEST(SlowGrowth, OfOneBlockThatFillsEndsWithIt) {
  const Lines lines;
  const auto filling =
      seen(lines, {.duration_s = 74, .load = nothing, .leak = grows(2), .untouched = [](double time_s) {
                     return 200 - grows(2)(time_s);
                   }});
  const Verdict verdict = heap_verdict(filling);
  EXPECT_EQ(verdict.headline,
            "144 MiB live Python objects (made at a.py:5 in leak), still growing at the end by 2.0 MiB/s; "
            "56 MiB of what it asked for are not touched yet");
  EXPECT_EQ(verdict.severity, Severity::info);
  EXPECT_TRUE(contains(verdict.advice, "ends by itself once the 56 MiB")) << verdict.advice;
  EXPECT_EQ(verdict.evidence["trend"]["fills"]["left_bytes"], 56 * kMiB);
  // Block after block, each filled at once or little by little, is a leak as any other.
  for (const double rest : {0.0, 30.0}) {
    const auto leak =
        seen(lines, {.duration_s = 74, .load = nothing, .leak = grows(2), .untouched = [=](double time_s) {
                       return rest - std::fmod(grows(2)(time_s), std::max(rest, 1.0));
                     }});
    EXPECT_EQ(heap_verdict(leak).severity, Severity::warning) << rest;
  }
}

TEST(SlowGrowth, OfTheLineThatLoadedIsReportedWithoutASecondName) {
  const Lines lines;
  const Course both = [](double time_s) { return loads(284)(time_s) + grows(0.7)(time_s); };
  EXPECT_EQ(reported(lines, {.duration_s = 74, .load = both, .leak = nothing}),
            "warning: 334 MiB live Python objects (made at a.py:2 in load), still growing at the end by 717 KiB/s");
  // Samples that share out a known sum say nothing of how the sum moves.
  EXPECT_TRUE(contains(reported(lines, {.duration_s = 74, .load = both, .leak = nothing, .standard_error_mib = 20}),
                       "still growing at the end by 717 KiB/s"));
}

TEST(SlowGrowth, OfSeveralLinesIsNotBlamedOnTheOneThatLoaded) {
  const Lines lines;
  Program program{.duration_s = 16, .load = loads(284), .leak = grows(0.3), .more = {grows(0.25), grows(0.2)}};
  const Verdict two = heap_verdict(seen(lines, program));
  EXPECT_EQ(two.headline,
            "294 MiB live Python objects (made at a.py:2 in load), still growing at the end by 768 KiB/s, mostly at "
            "a.py:5 in leak and at a.py:11 in f");
  EXPECT_TRUE(contains(two.advice, "look for what keeps it from a.py:5 in leak and a.py:11 in f on:")) << two.advice;
  program.leak = grows(0.22);
  program.more = {grows(0.21), grows(0.2), grows(0.19), grows(0.19)};
  EXPECT_TRUE(contains(reported(lines, program), "mostly at a.py:5 in leak, at a.py:11 in f and at a.py:12 in f"));
  program.leak = grows(0.1);
  program.more.assign(6, grows(0.1));
  const Verdict many = heap_verdict(seen(lines, program));
  EXPECT_TRUE(contains(many.headline, "/s, at many lines")) << many.headline;
  EXPECT_TRUE(contains(many.advice, "from the lines that still grow on:")) << many.advice;
}

TEST(SlowGrowth, InAShortProgramIsReportedWhereItIsEvenAndMuch) {
  const Lines lines;
  EXPECT_EQ(reported(lines, {.duration_s = 8, .load = loads(284), .leak = grows(6)}),
            "info: 320 MiB live Python objects (most made at a.py:2 in load: 284 MiB), still growing at the end by "
            "6.0 MiB/s at a.py:5 in leak");
}

TEST(SlowGrowth, InAShortProgramIsNeitherFlatNorGrowing) {
  const Lines lines;
  const Verdict verdict = heap_verdict(seen(lines, {.duration_s = 8, .load = loads(284), .leak = grows(0.7)}));
  EXPECT_EQ(verdict.headline, "288 MiB live Python objects (made at a.py:2 in load)");
  EXPECT_FALSE(contains(verdict.advice, "No leak"));
}

TEST(SlowGrowth, BesideMemoryOfAnotherCauseIsReportedToo) {
  const Lines lines;
  EXPECT_EQ(reported(lines, {.duration_s = 74, .load = nothing, .leak = grows(0.7), .other = loads(2000)}),
            "warning: 50 MiB live Python objects (made at a.py:5 in leak), still growing at the end by 717 KiB/s");
  EXPECT_EQ(reported(lines, {.duration_s = 74, .load = nothing, .leak = loads(50), .other = loads(2000)}), "");
}

TEST(SlowGrowth, BesideASawtoothIsReported) {
  const Lines lines;
  const Course saw = [](double time_s) { return 20 + 180 * std::fmod(time_s, 12.0) / 12; };
  EXPECT_EQ(reported(lines, {.duration_s = 70, .load = saw, .leak = grows(1)}),
            "warning: 218 MiB live Python objects (most made at a.py:2 in load: 150 MiB, 68 MiB at a.py:5 in leak), "
            "comes and goes, but still "
            "growing at the end by 1.0 MiB/s at a.py:5 in leak");
  EXPECT_EQ(reported(lines, {.duration_s = 70, .load = saw, .leak = nothing}),
            "info: 150 MiB live Python objects (made at a.py:2 in load), comes and goes");
}

TEST(SlowGrowth, WhatTakesThePlaceOfOtherDataIsNoWarning) {
  const Lines lines;
  const Course goes = [](double time_s) { return loads(150)(time_s) - grows(1)(time_s); };
  const Verdict verdict = heap_verdict(seen(lines, {.duration_s = 70, .load = goes, .leak = grows(1)}));
  EXPECT_EQ(verdict.severity, Severity::info);
  EXPECT_EQ(verdict.headline,
            "150 MiB live Python objects (most made at a.py:2 in load: 82 MiB, 68 MiB at a.py:5 in leak), flat since "
            "2.0 s, but still growing at "
            "the end by 1.0 MiB/s at a.py:5 in leak");
  EXPECT_FALSE(contains(verdict.advice, "No leak"));
}

// The sum is flat all the time, the line that the headline names is not.
TEST(SlowGrowth, ALineThatTookThePlaceOfAnotherIsFlatSinceThen) {
  const Lines lines;
  const Course goes = [](double time_s) { return time_s < 20 ? loads(150)(time_s) : 0.0; };
  const Course comes = [](double time_s) { return time_s < 20 ? 0.0 : 150.0; };
  const std::string text = reported(lines, {.duration_s = 70, .load = goes, .leak = comes});
  EXPECT_TRUE(contains(text, "a.py:5 in leak")) << text;
  EXPECT_FALSE(contains(text, "flat since 2.0 s")) << text;
}

TEST(SlowGrowth, WhatFillsAndStopsIsFlat) {
  const Lines lines;
  const Course fills = [](double time_s) { return std::min(30.0, grows(1)(time_s)); };
  EXPECT_EQ(reported(lines, {.duration_s = 74, .load = loads(284), .leak = fills}),
            "info: 314 MiB live Python objects (most made at a.py:2 in load: 284 MiB), flat since 18.0 s");
  const Course saturates = [](double time_s) { return 30 * (1 - std::exp(-time_s / 8)); };
  EXPECT_TRUE(contains(reported(lines, {.duration_s = 74, .load = loads(284), .leak = saturates}), "flat since"));
}

// As one whose collector had no turn: what it had at its end is known by an estimate alone.
TEST(SlowGrowth, WhatNobodySawForLongIsNotFlat) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {.duration_s = 74, .load = loads(284), .leak = nothing});
  EXPECT_TRUE(contains(heap_verdict(recording).headline, "flat since 2.0 s"));
  recording.processes[0].ended_s = 74;
  recording.processes[0].unseen_s = 10;
  EXPECT_TRUE(contains(heap_verdict(recording).headline, "flat since 2.0 s"));
  recording.processes[0].unseen_s = 30;
  EXPECT_FALSE(contains(heap_verdict(recording).headline, "flat"));
  // Its polls to the end are those of a process at rest.
  ProcessAccount& process = recording.processes[0];
  const std::int64_t rss_bytes = process.accounts.back().rss_bytes;
  for (double time_s = 1; time_s < 74; time_s += 0.1) process.polls.push_back({time_s, rss_bytes});
  EXPECT_TRUE(contains(heap_verdict(recording).headline, "flat since 2.0 s"));
  process.polls[700].rss_bytes += 40 * literal::kMiB;
  EXPECT_FALSE(contains(heap_verdict(recording).headline, "flat"));
}

TEST(SlowGrowth, WhatRestedAtTheEndHasStopped) {
  const Lines lines;
  const auto until = [](double end_s) { return [=](double time_s) { return grows(3, 0)(std::min(time_s, end_s)); }; };
  Program program{.duration_s = 78, .load = nothing, .leak = until(64)};
  const Verdict verdict = heap_verdict(seen(lines, program));
  EXPECT_EQ(verdict.headline, "192 MiB live Python objects (made at a.py:5 in leak), flat since 64.0 s");
  EXPECT_EQ(verdict.severity, Severity::info);
  EXPECT_TRUE(contains(verdict.advice, "It grew evenly until 64.0 s, and not since")) << verdict.advice;
  // A pause as it had before, and waves that end high, are no end.
  program.leak = [](double time_s) { return 24 * std::floor(time_s / 8); };
  EXPECT_TRUE(contains(reported(lines, program), "still growing at the end"));
  program.leak = [](double time_s) { return grows(3, 0)(time_s) + 60 * std::fmod(time_s, 14) / 14; };
  EXPECT_TRUE(contains(reported(lines, program), "still growing at the end"));
  program.leak = until(76);
  EXPECT_TRUE(contains(reported(lines, program), "still growing at the end"));
}

TEST(SlowGrowth, StepsAndBreathingAreFlat) {
  const Lines lines;
  const Course step = [](double time_s) { return time_s < 40 ? 0.0 : 8.0; };
  const Course two_steps = [](double time_s) { return time_s < 30 ? 0.0 : time_s < 60 ? 5.0 : 8.0; };
  const Course breath = [](double time_s) { return 6 + 3 * std::sin(time_s * 1.7); };
  const Course little = grows(0.012);
  for (const Course& course : {step, two_steps, breath, little}) {
    const std::string text = reported(lines, {.duration_s = 74, .load = loads(284), .leak = course});
    EXPECT_TRUE(contains(text, "flat since 2.0 s") || contains(text, "flat since 4.0 s")) << text;
    EXPECT_FALSE(contains(text, "growing")) << text;
  }
}

StackId importing_stack(Lines& lines) {
  const auto frame = [&](const char* file, int line, const char* function) {
    return lines.stacks.intern(Frame{.kind = FrameKind::python, .function = function, .file = file, .line = line});
  };
  return lines.stacks.intern({frame("/usr/lib/python3/dist-packages/torch/__init__.py", 9, "<module>"),
                              frame("<frozen importlib._bootstrap>", 1178, "_find_and_load"),
                              frame("/home/u/a.py", 1, "<module>")});
}

// A program that imports torch for half of its 9 seconds, and leaks in the other half.
TEST(SlowGrowth, AfterImportsIsJudgedByTheTimeAfterThem) {
  Lines lines;
  lines.load = importing_stack(lines);
  const Program program{.duration_s = 9, .load = loads(160, 4.5), .leak = grows(40, 4.6), .walk_s = 0.3};
  const Verdict verdict = heap_verdict(seen(lines, program));
  EXPECT_EQ(verdict.headline,
            "176 MiB live Python objects (made at a.py:5 in leak), still growing at the end by 40 MiB/s");
  EXPECT_TRUE(contains(verdict.advice, "s on it grew evenly to the end")) << verdict.advice;
}

// An import that takes most of a short program's time, and work at its end.
TEST(SlowGrowth, OfImportsIsNotOfTheWork) {
  Lines lines;
  lines.leak = importing_stack(lines);
  const Program program{.duration_s = 5,
                        .load = [](double time_s) { return time_s >= 4.9 ? 160 : 0; },
                        .leak = [](double time_s) { return 50 * time_s; },
                        .walk_s = 0.1};
  EXPECT_EQ(reported(lines, program), "info: 160 MiB live Python objects (made at a.py:2 in load)");
}

// A cache that changes all it holds: samples say a little more or less of its line at each walk.
TEST(SlowGrowth, WithinItsErrorALineIsFlat) {
  const Lines lines;
  const auto breathing = [&](double standard_error_mib) {
    const Course leak = [](double time_s) { return loads(10)(time_s) + (time_s == 30 ? 7 : 0); };
    const Course load = [](double time_s) { return loads(90)(time_s) - (time_s == 30 ? 7 : 0); };
    return reported(lines, {.duration_s = 60, .load = load, .leak = leak, .standard_error_mib = standard_error_mib});
  };
  EXPECT_TRUE(contains(breathing(1), "flat since 2.0 s")) << breathing(1);
  EXPECT_TRUE(contains(breathing(0.1), "flat since 32.0 s")) << breathing(0.1);
}

TEST(SlowGrowth, WithinItsErrorALineIsNotBlamed) {
  const Lines lines;
  const std::string text =
      reported(lines, {.duration_s = 74, .load = loads(284), .leak = grows(0.1), .standard_error_mib = 4});
  EXPECT_FALSE(contains(text, "a.py:5")) << text;
}

// Walks that are far apart do not tell a step from even growth; RSS, which is read all the time, does.
TEST(SlowGrowth, TheRateIsThatOfTheGrowthWithoutARestAtTheEnd) {
  const Lines lines;
  Program program{.duration_s = 78, .load = nothing, .leak = [](double time_s) { return 24 * std::floor(time_s / 8); }};
  EXPECT_TRUE(contains(reported(lines, program), "still growing at the end by 3.0 MiB/s")) << reported(lines, program);
  program.leak = [](double time_s) { return 3 * std::min(time_s, 74.0); };
  EXPECT_TRUE(contains(reported(lines, program), "still growing at the end by 3.0 MiB/s")) << reported(lines, program);
}

// Gradients of a training loop: freed before each step, and there again after it.
TEST(SlowGrowth, WhatIsThereAtTheEndAsItWasBeforeDoesNotGrow) {
  const Lines lines;
  const auto with_dips = [](double height) {
    return [=](double time_s) {
      const bool is_freed = std::fmod(time_s, 4) < 0.5 && time_s > 9;
      return loads(128)(time_s) - (is_freed ? 128 : 0) + std::max(0.0, height * (time_s - 2));
    };
  };
  Program program{.duration_s = 14, .load = loads(384), .leak = with_dips(0), .walk_s = 0.5};
  EXPECT_EQ(reported(lines, program),
            "info: 512 MiB live Python objects (most made at a.py:2 in load: 384 MiB, 128 MiB at a.py:5 in leak)");
  program.leak = with_dips(20);
  EXPECT_TRUE(contains(reported(lines, program), "still growing at the end")) << reported(lines, program);
}

TEST(SlowGrowth, PollsTellThatItStopped) {
  const Lines lines;
  const Course until = [](double time_s) { return 20 * std::min(time_s, 4.5); };
  RecordingAccount recording = seen(lines, {.duration_s = 5, .load = nothing, .leak = until, .walk_s = 0.5});
  for (double time_s = 0; time_s <= 5; time_s += 0.05)
    recording.processes[0].polls.push_back(
        {time_s, static_cast<std::int64_t>(until(time_s) * static_cast<double>(kMiB)), 0});
  EXPECT_EQ(heap_verdict(recording).headline, "90 MiB live Python objects (made at a.py:5 in leak), flat since 4.5 s");
}

TEST(SlowGrowth, BetweenWalksRssTellsHowItMoved) {
  const Lines lines;
  RecordingAccount recording = seen(lines, {.duration_s = 21, .load = loads(200), .leak = grows(0.5, 0), .walk_s = 7});
  EXPECT_TRUE(contains(heap_verdict(recording).headline, "still growing")) << heap_verdict(recording).headline;
  for (double time_s = 0; time_s <= 21; time_s += 0.5) {
    const double mib = loads(200)(time_s) + 3.5 * std::ceil(time_s / 7);
    recording.processes[0].polls.push_back({time_s, static_cast<std::int64_t>(mib * static_cast<double>(kMiB)), 0});
  }
  EXPECT_TRUE(contains(heap_verdict(recording).headline, "flat since")) << heap_verdict(recording).headline;
}

// RSS moved far more than the line did, so it tells only when nothing can have moved.
TEST(SlowGrowth, BetweenWalksALineRestsWhileRssDoes) {
  const Lines lines;
  const auto with_rest_from = [&](double stop_s) {
    const auto part = [=](double time_s) { return std::clamp((time_s - 4) / (stop_s - 4), 0., 1.); };
    const Course load = [=](double time_s) { return 60 * part(time_s); };
    const Course leak = [=](double time_s) { return 4 * std::min(time_s, 4.) + 4 * part(time_s); };
    RecordingAccount recording = seen(lines, {.duration_s = 6, .load = load, .leak = leak, .walk_s = 2});
    for (double time_s = 0; time_s <= 6; time_s += 0.05)
      recording.processes[0].polls.push_back(
          {time_s, static_cast<std::int64_t>((load(time_s) + leak(time_s)) * static_cast<double>(kMiB)), 0});
    return heap_verdict(recording).headline;
  };
  EXPECT_FALSE(contains(with_rest_from(4.5), "still growing")) << with_rest_from(4.5);
  EXPECT_TRUE(contains(with_rest_from(6), "still growing")) << with_rest_from(6);
}

// A program that is killed is not walked at its end, nor while it rests before.
TEST(Trend, ARestAfterTheLastWalkIsKnownByPolls) {
  const Lines lines;
  RecordingAccount recording = seen(
      lines, {.duration_s = 20, .load = [](double) { return 5.; }, .leak = [](double time_s) { return 2 * time_s; }});
  recording.info.duration_s = 60;
  ProcessAccount& process = recording.processes.front();
  const Account walked = process.accounts.back();
  const auto headline = [&] { return heap_verdict(recording).headline; };
  EXPECT_NE(headline().find("still growing at the end"), std::string::npos) << headline();
  for (double time_s = 21; time_s <= 60; ++time_s) process.polls.push_back({time_s, walked.rss_bytes});
  EXPECT_NE(headline().find("flat since 20.0 s"), std::string::npos) << headline();
  process.live_polls = {{19, 0}, {40, 30 * kMiB}};  // of what was live something else had gone
  EXPECT_NE(headline().find("still growing at the end"), std::string::npos) << headline();
}

}  // namespace
}  // namespace whyrss::trend_test
