// What `whyrss diff` makes of two views: which lines belong together, what is new, gone, grown, and what is noise.
#include "report/diff/diff.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/fail_if.h"
#include "literal_accounts.h"
#include "report/diff/diff_formats.h"
#include "report/diff/diff_lines.h"
#include "report/diff/diff_words.h"
#include "report/view/build_view.h"
#include "report/view/interval.h"
#include "text_width.h"

namespace whyrss::diff_test {
namespace {

using literal::kMiB;
using literal::Part;
using literal::walk;
using Pairs = std::vector<std::pair<int, int>>;

// A process that has `parts` at its end; stacks of Python by file, line and function.
struct Line {
  Cause cause;
  std::int64_t mib;
  std::string file;
  int number;
  std::string function;
  double error_mib = 0;
};

RecordingAccount recording_of(const std::vector<Line>& lines) {
  RecordingAccount recording;
  recording.info = literal::finished({"/usr/bin/python", "a.py"}, 1);
  ProcessAccount process = literal::python_process(77, recording.info.command);
  process.ended_s = 1;
  std::vector<Part> parts;
  for (const Line& line : lines)
    parts.push_back({line.cause, line.mib,
                     line.number == 0 ? kEmptyStack
                                      : literal::python_stack(recording.stacks, line.file, line.number, line.function),
                     line.number == 0 ? line.file : ""});
  process.accounts.push_back(walk(0.9, parts));
  for (Slice& slice : process.accounts.back().slices.open())
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (parts[i].stack == slice.site.stack && parts[i].cause == slice.site.cause)
        slice.variance = lines[i].error_mib * kMiB * lines[i].error_mib * kMiB;
  recording.processes.push_back(process);
  return recording;
}

struct Both {
  RecordingAccount a, b;
  View view_a, view_b;
  Diff diff;
};

std::unique_ptr<Both> compared(const std::vector<Line>& a, const std::vector<Line>& b) {
  auto both = std::make_unique<Both>(Both{recording_of(a), recording_of(b), {}, {}, {}});
  both->view_a = build_view(both->a, whole_life(both->a));
  both->view_b = build_view(both->b, whole_life(both->b));
  both->diff = build_diff(both->view_a, both->view_b, SiteFigure::growth);
  return both;
}

std::string reported(const DiffLine& line) {
  return fmt::format("{} {}>{} {} {}>{}", line.function, line.line_a, line.line_b, slug_of(line.figure.state()),
                     line.figure.a / kMiB, line.figure.b / kMiB);
}

std::vector<std::string> reported(const Diff& diff) {
  std::vector<std::string> lines;
  for (const DiffLine& line : diff.lines) lines.push_back(reported(line));
  return lines;
}

TEST(DiffLines, NumbersMoveTogether) {
  EXPECT_EQ(pair_lines({41}, {38}), (Pairs{{41, 38}}));
  EXPECT_EQ(pair_lines({41, 42}, {42, 43}), (Pairs{{41, 42}, {42, 43}}));
  EXPECT_EQ(pair_lines({10, 20, 30}, {10, 25, 30}),
            (Pairs{{10, 10}, {20, kNoLineNumber}, {30, 30}, {kNoLineNumber, 25}}));
  EXPECT_EQ(pair_lines({10, 20}, {13, 17, 23}), (Pairs{{10, 13}, {20, 23}, {kNoLineNumber, 17}}));
  EXPECT_EQ(pair_lines({}, {5}), (Pairs{{kNoLineNumber, 5}}));
  EXPECT_EQ(pair_lines({5}, {}), (Pairs{{5, kNoLineNumber}}));
  EXPECT_EQ(pair_lines({0}, {0}), (Pairs{{0, 0}}));
  EXPECT_EQ(pair_lines({5}, {4, 6}), (Pairs{{5, 4}, {kNoLineNumber, 6}}));
}

TEST(Diff, LinesAreFoundAgainWhereTheyHaveMoved) {
  const auto both = compared({{Cause::heap_live, 10, "/a.py", 5, "load"}, {Cause::heap_live, 3, "/a.py", 9, "old"}},
                             {{Cause::heap_live, 30, "/a.py", 8, "load"}, {Cause::heap_live, 4, "/a.py", 9, "extra"}});
  EXPECT_EQ(reported(both->diff),
            (std::vector<std::string>{"load 5>8 grown 10>30", "extra 0>9 new 0>4", "old 9>0 gone 3>0"}));
}

TEST(Diff, NextToNothingIsNew_AndGone) {
  const std::int64_t little = kMiB / 100;
  EXPECT_EQ((DiffFigure{.a = 42 * kMiB, .b = little}).state(), DiffState::gone);
  EXPECT_EQ((DiffFigure{.a = little, .b = 42 * kMiB}).state(), DiffState::added);
  EXPECT_EQ((DiffFigure{.a = 42 * kMiB, .b = kMiB}).state(), DiffState::shrunk);
  EXPECT_EQ((DiffFigure{.a = 4 * little, .b = little}).state(), DiffState::shrunk);
  EXPECT_EQ((DiffFigure{.a = 42 * kMiB, .b = -2 * kMiB}).state(), DiffState::shrunk);
}

TEST(Diff, WhatIsManyTimesAsMuchHasNoPercents) {
  EXPECT_EQ(change_line("RSS", {.a = 2 * kMiB, .b = 22 * kMiB}), "RSS: 2.0 MiB in A, 22 MiB in B: +20 MiB (+1000 %)");
  EXPECT_EQ(change_line("RSS", {.a = 2 * kMiB, .b = 24 * kMiB}), "RSS: 2.0 MiB in A, 24 MiB in B: +22 MiB (12 times)");
  EXPECT_EQ(change_line("RSS", {.a = 4096, .b = 24 * kMiB}), "RSS: 4 KiB in A, 24 MiB in B: +24 MiB");
}

TEST(Diff, OnlyProcessesOfTheIntervalAreCounted) {
  const auto both =
      compared({{Cause::heap_live, 10, "/a.py", 5, "load"}}, {{Cause::heap_live, 30, "/a.py", 5, "load"}});
  for (RecordingAccount* recording : {&both->a, &both->b}) {
    recording->processes.push_back(recording->processes.front());
    recording->processes.back().pid += 1;
    recording->processes.back().born_s = 500;
  }
  both->view_a = build_view(both->a, {.to_s = 400});
  both->view_b = build_view(both->b, {.to_s = 600});
  const std::string text = render_diff_text(build_diff(both->view_a, both->view_b, SiteFigure::growth), {});
  EXPECT_NE(text.find("summed over 1 and 2 processes"), std::string::npos) << text;
}

TEST(Diff, WhatWasNotReadIsNotZero) {
  const auto both =
      compared({{Cause::heap_live, 10, "/a.py", 5, "load"}}, {{Cause::heap_live, 30, "/a.py", 5, "load"}});
  both->b.processes[0].accounts.clear();
  both->view_b = build_view(both->b, whole_life(both->b));
  const std::string text = render_diff_text(build_diff(both->view_a, both->view_b, SiteFigure::growth), {});
  EXPECT_NE(text.find("RSS, growth: 10 MiB in A, not known in B\n"), std::string::npos) << text;
  EXPECT_NE(text.find("No memory of B was read"), std::string::npos) << text;
  EXPECT_EQ(text.find("gone"), std::string::npos) << text;
  const auto json =
      nlohmann::json::parse(render_diff_json(build_diff(both->view_a, both->view_b, SiteFigure::growth), {}));
  EXPECT_EQ(json["a"]["read"], true);
  EXPECT_EQ(json["b"]["read"], false);
  EXPECT_EQ(json["b"]["process_count"], 1);
}

TEST(Diff, ACheckoutElsewhereIsTheSameProgram) {
  const auto both = compared({{Cause::heap_live, 10, "/old/pkg/x/__init__.py", 1, "<module>"},
                              {Cause::heap_live, 20, "/old/pkg/y/__init__.py", 1, "<module>"}},
                             {{Cause::heap_live, 21, "/new/dir/pkg/y/__init__.py", 1, "<module>"},
                              {Cause::heap_live, 15, "/new/dir/pkg/x/__init__.py", 1, "<module>"}});
  EXPECT_EQ(reported(both->diff), (std::vector<std::string>{"<module> 1>1 grown 10>15", "<module> 1>1 grown 20>21"}));
  EXPECT_EQ(both->diff.lines[0].file, "/new/dir/pkg/x/__init__.py");
}

TEST(Diff, OfMappingsThatNobodyIsSeenToMapTheNameCounts) {
  const auto both =
      compared({{Cause::file_cache, 5, "/usr/lib/libc.so", 0, ""}, {Cause::whyrss, 3, "/dev/shm/a", 0, ""}},
               {{Cause::file_cache, 6, "/usr/lib/libc.so", 0, ""}, {Cause::whyrss, 3, "/dev/shm/b", 0, ""}});
  ASSERT_EQ(both->diff.lines.size(), 2U);
  EXPECT_EQ(both->diff.lines[0].line, "libc.so");
  EXPECT_EQ(both->diff.lines[0].figure.change(), kMiB);
  EXPECT_EQ(both->diff.lines[1].figure.state(), DiffState::same);  // our own has another name each time
}

TEST(Diff, WhatIsWithinItsErrorIsTheSame) {
  const auto both =
      compared({{Cause::heap_live, 10, "/a.py", 5, "load", 1}}, {{Cause::heap_live, 12, "/a.py", 5, "load", 1}});
  ASSERT_EQ(both->diff.lines.size(), 1U);
  EXPECT_EQ(both->diff.lines[0].figure.variance, 2.0 * kMiB * kMiB);
  EXPECT_EQ(both->diff.lines[0].figure.state(), DiffState::same);
  EXPECT_EQ(both->diff.causes[0].figure.state(), DiffState::grown);  // its total is exact
  EXPECT_NE(render_diff_text(both->diff, {}).find("no line differs"), std::string::npos);
  const auto far =
      compared({{Cause::heap_live, 10, "/a.py", 5, "load", 1}}, {{Cause::heap_live, 14, "/a.py", 5, "load", 1}});
  EXPECT_EQ(far->diff.lines[0].figure.state(), DiffState::grown);
  EXPECT_NE(render_diff_text(far->diff, {}).find("+4.0 ± 35 %"), std::string::npos);
}

TEST(Diff, LinesSumToCausesAndCausesToRss) {
  const RecordingAccount a = literal::quickstart(), b = literal::quiet();
  const View view_a = build_view(a, whole_life(a)), view_b = build_view(b, whole_life(b));
  for (const SiteFigure which : {SiteFigure::growth, SiteFigure::resident, SiteFigure::at_peak}) {
    const Diff diff = build_diff(view_a, view_b, which);
    DiffFigure sum;
    for (const DiffCause& cause : diff.causes) {
      sum.a += cause.figure.a;
      sum.b += cause.figure.b;
      std::int64_t of_a = 0, of_b = 0;
      for (const DiffLine& line : diff.lines)
        if (line.cause == cause.cause) {
          of_a += line.figure.a;
          of_b += line.figure.b;
        }
      EXPECT_EQ(of_a, cause.figure.a);
      EXPECT_EQ(of_b, cause.figure.b);
    }
    EXPECT_EQ(sum.a, diff.rss.a);
    EXPECT_EQ(sum.b, diff.rss.b);
  }
}

TEST(Diff, OfAViewWithItselfIsNothing) {
  const RecordingAccount a = literal::quickstart();
  const View view = build_view(a, whole_life(a));
  for (const DiffLine& line : build_diff(view, view, SiteFigure::growth).lines)
    EXPECT_EQ(line.figure.state(), DiffState::same);
}

TEST(Diff, TheLinesLeftOutOfJsonAreSummed) {
  const auto both = compared({{Cause::heap_live, 9, "/a.py", 5, "f"},
                              {Cause::heap_live, 3, "/a.py", 9, "g"},
                              {Cause::heap_live, 1, "/a.py", 12, "h"}},
                             {});
  const auto json = nlohmann::json::parse(render_diff_json(both->diff, {.top = 1}));
  ASSERT_EQ(json["lines"].size(), 2U);
  EXPECT_EQ(json["lines"][0]["function"], "f");
  EXPECT_EQ(json["lines"][1]["function"], "");
  EXPECT_EQ(json["lines"][1]["a"], 4 * kMiB);
  EXPECT_EQ(json["rss"]["change"], -13 * kMiB);
}

TEST(Diff, LessThanHalfAPercentHasNoSign) {
  for (const std::int64_t more : {2, -2}) {
    const auto both =
        compared({{Cause::heap_live, 1000, "/a.py", 5, "f"}}, {{Cause::heap_live, 1000 + more, "/a.py", 5, "f"}});
    const std::string text = render_diff_text(both->diff, {});
    EXPECT_NE(text.find(" 0 %"), std::string::npos) << text;
    EXPECT_EQ(text.find("-0 %"), std::string::npos) << text;
    EXPECT_EQ(text.find("+0 %"), std::string::npos) << text;
  }
}

TEST(Diff, HostileNamesStayOnTheirLine) {
  const std::string name = "f\n\x1b[31m|`<b>";
  const auto both = compared({}, {{Cause::heap_live, 9, "/a.py", 5, name}});
  const std::string text = render_diff_text(both->diff, {.name_a = "a\nb", .name_b = "b"});
  EXPECT_NE(text.find("f??[31m|`<b>"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(render_diff_markdown(both->diff, {}).find("f??\\[31m\\|\\`\\<b>"), std::string::npos);
}

TEST(Diff, NoLineIsWiderThanItMayBe) {
  const std::string name(3000, 'n');
  const auto both = compared(
      {{Cause::heap_live, 1024, "/" + name + ".py", 5, "load"}},
      {{Cause::heap_live, 9000, "/" + name + ".py", 5, "load", 90}, {Cause::file_cache, 9, "/data/" + name, 0, ""}});
  both->a.info.complete = false;
  both->a.info.incomplete_why = "its collector " + name;
  for (const std::size_t columns : {60U, 80U, 100U, 180U}) {
    const std::string text =
        render_diff_text(both->diff, {.name_a = "a.whyrss: " + name, .name_b = "b.whyrss", .columns = columns});
    EXPECT_LE(widest_line(text), columns) << text;
    EXPECT_NE(text.find("+7976.0"), std::string::npos) << text;  // figures stay
  }
}

TEST(DiffFailIf, SizesAndPercentages) {
  const auto both = compared({{Cause::heap_live, 10, "/a.py", 5, "f"}}, {{Cause::heap_live, 12, "/a.py", 5, "f"}});
  const auto is_held = [&](const std::string& text) {
    const Result<DiffFailIf> condition = parse_diff_fail_if(text);
    EXPECT_TRUE(condition) << text;
    const Result<DiffFigure> figure = figure_of(*condition, both->diff);
    return figure && holds(*condition, *figure);
  };
  EXPECT_TRUE(is_held("heap_live > +10%"));
  EXPECT_TRUE(is_held("rss>19.9 %"));
  EXPECT_FALSE(is_held("heap_live>20%"));
  EXPECT_TRUE(is_held("heap_live>=20%"));
  EXPECT_TRUE(is_held("uss > +1MiB"));
  EXPECT_FALSE(is_held("heap_live>2MiB"));
  EXPECT_TRUE(is_held("heap_live>=2MiB"));
  EXPECT_FALSE(is_held("fork_cow>0%"));  // neither has any
  for (const char* text : {"heap_live", "heap_live>", "heap_live>+-5%", "heap_live>5%%", "heap>5%", "heap_live>nan%"})
    EXPECT_FALSE(parse_diff_fail_if(text)) << text;
  const auto unread =
      figure_of(*parse_diff_fail_if("pss>1MiB"), compared({{Cause::heap_live, 900, "/a.py", 5, "f"}}, {})->diff);
  EXPECT_FALSE(unread);
}

}  // namespace
}  // namespace whyrss::diff_test
