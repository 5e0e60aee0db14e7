// What people read, to the letter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "literal_accounts.h"
#include "report/render/markdown.h"
#include "report/render/process_text.h"
#include "report/render/text.h"
#include "report/view/build_view.h"
#include "report/view/call_chains.h"
#include "report/wording/format.h"
#include "report/wording/table.h"
#include "report/wording/wrap.h"
#include "support/text.h"
#include "text_width.h"

namespace whyrss::text_report_test {
namespace {

using literal::kMiB;

std::string short_text(const RecordingAccount& recording, TextStyle style = {}) {
  const View view = build_view(recording, whole_life(recording));
  return render_short(view, find_verdicts(view), style);
}

std::string full_text(const RecordingAccount& recording, Interval interval) {
  const View view = build_view(recording, interval);
  return render_text(view, find_verdicts(view), {});
}

std::string full_text(const RecordingAccount& recording) { return full_text(recording, whole_life(recording)); }

// The part that begins with a title line, up to the next empty line.
std::string section(const std::string& text, const std::string& title) {
  const std::size_t at = text.find("\n" + title + "\n");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + title.size() + 2;
  return text.substr(begin, text.find("\n\n", begin) + 1 - begin);
}

TEST(ShortText, Quickstart) {
  EXPECT_EQ(short_text(literal::quickstart()),
            R"(python quickstart.py (pid 4711)   RSS +651 MiB in 9.8 s = 512 file cache + 130 live + 9 other
  ok       512 MiB file cache of big.txt (mapped at quickstart.py:18 in load): reclaimable, not a
           leak
  warning  2 workers copied 124 MiB each of what they inherited (fork COW; objects made at
           quickstart.py:24)
  info     130 MiB live Python objects (made at quickstart.py:24 in load)
)");
}

TEST(ShortText, NothingGrew) {
  EXPECT_EQ(short_text(literal::quiet()), R"(python -c pass (pid 77)   RSS +7.0 MiB in 0.5 s
  ok       nothing grew worth naming (largest growth of a process: 7.0 MiB)
)");
}

TEST(ShortText, HelpersAreOneLine) {
  RecordingAccount recording = literal::quickstart();
  for (const auto& [pid, name] : {std::pair{4700, "/bin/sh"}, {4720, "/usr/bin/git"}, {4721, "/usr/bin/git"}}) {
    ProcessAccount helper;
    helper.pid = pid;
    helper.command = {name, "-c", "x"};
    helper.ended_s = 5;
    helper.accounts.push_back(literal::walk(1, {{Cause::file_cache, 1}}));
    recording.processes.insert(pid == 4700 ? recording.processes.begin() : recording.processes.end(), helper);
  }
  EXPECT_EQ(short_text(recording),
            R"(python quickstart.py (pid 4711)   RSS +651 MiB in 9.8 s = 512 file cache + 130 live + 9 other
  ok       512 MiB file cache of big.txt (mapped at quickstart.py:18 in load): reclaimable, not a
           leak
  warning  2 workers copied 124 MiB each of what they inherited (fork COW; objects made at
           quickstart.py:24)
  info     130 MiB live Python objects (made at quickstart.py:24 in load)
3 more processes (git, sh): +3.0 MiB of their own together
)");
}

TEST(ShortText, HelpersThatComeOneAfterTheOtherAreNotAddedUp) {
  RecordingAccount recording = literal::quiet();
  for (int i = 0; i < 500; ++i) {
    ProcessAccount helper;
    helper.pid = 1000 + i;
    helper.command = {"/bin/true"};
    helper.born_s = 0.001 * i;
    helper.ended_s = helper.born_s + 0.0005;
    helper.accounts.push_back(literal::walk(helper.born_s + 0.0002, {{Cause::heap_live, 1}}));
    recording.processes.push_back(helper);
  }
  const std::string text = short_text(recording);
  EXPECT_NE(text.find("\n500 more processes (true): each up to 1.0 MiB of its own, at most that at once\n"),
            std::string::npos)
      << text;
  const View half = build_view(recording, {.from_s = 0.2501, .to_s = 0.5});  // without those of before
  EXPECT_NE(render_short(half, find_verdicts(half), {}).find("\n250 more processes (true): "), std::string::npos)
      << render_short(half, find_verdicts(half), {});
}

// A copy of the quickstart's main process, without what its workers copied.
ProcessAccount reader(int pid, std::int64_t file_mib) {
  ProcessAccount account = literal::quickstart().processes.front();
  account.pid = pid;
  account.command = {"/usr/bin/python3", "reader.py", fmt::format("--rank={}", pid)};
  account.accounts = {literal::walk(1, {}), literal::walk(9, {{Cause::file_cache, file_mib}})};
  return account;
}

TEST(ShortText, ProcessesOfWhichTheSameIsToBeSaidAreReportedOnce) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  for (int i = 0; i < 11; ++i) recording.processes.push_back(reader(50 + i, 100 + i));
  recording.processes.push_back(reader(70, 100));
  recording.processes.back().command[1] = "other.py";
  const std::string text = short_text(recording);
  std::size_t headlines = 0;
  for (std::size_t at = text.find("file cache of"); at != std::string::npos; at = text.find("file cache of", at + 1))
    ++headlines;
  EXPECT_EQ(headlines, 2U) << text;
  EXPECT_NE(text.find("python3 reader.py --rank=60 (pid 60)"), std::string::npos) << text;
  EXPECT_NE(text.find("python3 other.py --rank=70 (pid 70)"), std::string::npos) << text;
  EXPECT_NE(text.find("The same holds for 10 more processes like it: pid 59 (RSS +109 MiB), pid 58"), std::string::npos)
      << text;
  EXPECT_NE(text.find("and 2 more; the 11 together grew by 1155 MiB of their own\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("of their own together"), std::string::npos) << text;
}

// Of a pool's workers SIGTERM is the usual end.
TEST(ShortText, TheSignalThatEndedAProcessIsNamed) {
  RecordingAccount recording = literal::quickstart();
  recording.processes = {reader(50, 100), reader(51, 100)};
  ProcessAccount& child = recording.processes.back();
  child.ended_s = 9.5;
  const auto text = [&](const std::string& signal, bool by_fork) {
    child.end_signal = signal;
    child.born_by_fork = by_fork;
    child.command.back() = "--child";
    return short_text(recording);
  };
  EXPECT_NE(text("SIGKILL", true).find("; killed by SIGKILL"), std::string::npos) << text("SIGKILL", true);
  EXPECT_NE(text("SIGTERM", false).find("; killed by SIGTERM"), std::string::npos) << text("SIGTERM", false);
  EXPECT_EQ(text("SIGTERM", true).find("; killed by"), std::string::npos) << text("SIGTERM", true);
}

// What exit handlers take is in no figure of the run, and may be what a limit was met with.
TEST(ShortText, GrowthOfATeardownIsNamed) {
  RecordingAccount recording = literal::quickstart();
  recording.processes = {reader(50, 100)};
  ProcessAccount& process = recording.processes.front();
  process.accounts.push_back(literal::walk(9.5, {{Cause::file_cache, 109}}));
  process.teardown_s = 9.2;
  process.ended_s = 10;
  EXPECT_NE(short_text(recording).find("; 109 MiB as it ended,\n  at 9.5 s (--from teardown)"), std::string::npos)
      << short_text(recording);
  process.accounts.back() = literal::walk(9.5, {{Cause::file_cache, 107}});
  EXPECT_EQ(short_text(recording).find("as it ended"), std::string::npos) << short_text(recording);
}

// The kernel rounds a start down to 10 ms, and an end is seen some milliseconds after it.
TEST(ShortText, ProcessesAlikeThatCameOneAfterAnother) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  const auto add = [&](double begin_s) {
    ProcessAccount& one = recording.processes.emplace_back(reader(50 + static_cast<int>(begin_s), 100));
    one.born_s = begin_s;
    one.left_s = begin_s + 1.005;
    one.ended_s = begin_s + 1.02;
    one.has_left = true;
    one.accounts = {literal::walk(begin_s + 0.5, {}), literal::walk(begin_s + 1, {{Cause::file_cache, 100}})};
  };
  for (const double begin_s : {0, 1, 2}) add(begin_s);
  EXPECT_NE(short_text(recording).find("2 more processes like it, one at a time: pid 5"), std::string::npos)
      << short_text(recording);
  add(2.5);
  recording.processes.back().pid = 70;
  EXPECT_NE(short_text(recording).find("3 more processes like it, at most 2 at a time: pid "), std::string::npos)
      << short_text(recording);
}

// Of which another thing is to be said each: a screen of them, and in the report as many as are asked for.
TEST(ShortText, OfManyKindsOfProcessesThereAreAsManyAsFit) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  for (int i = 0; i < 26; ++i) {
    recording.processes.push_back(reader(50 + i, 100));
    recording.processes.back().command[1] = fmt::format("{:c}.py", 'a' + i);
  }
  const std::string text = short_text(recording);
  EXPECT_LE(std::ranges::count(text, '\n'), 30) << text;
  EXPECT_LE(std::ranges::count(short_text(recording, {.lines = 21}), '\n'), 21);  // a terminal of 24
  EXPECT_NE(short_text(recording, {.lines = 0}).find("25 more processes with verdicts"), std::string::npos);
  EXPECT_NE(text.find("a.py --rank=50 (pid 50)   RSS"), std::string::npos) << text;
  EXPECT_NE(text.find(" of their own (whyrss report --top 26 shows all): "), std::string::npos) << text;
  EXPECT_NE(text.find(" and others\n"), std::string::npos) << text;
  const View view = build_view(recording, whole_life(recording));
  const std::vector<Verdict> verdicts = find_verdicts(view);
  const auto report = [&](std::size_t top) { return render_text(view, verdicts, {.top = top}); };
  EXPECT_NE(report(10).find("16 more processes with verdicts of their own"), std::string::npos) << report(10);
  EXPECT_EQ(report(26).find("with verdicts of"), std::string::npos) << report(26);
}

TEST(ShortText, WhetherALineIsNamedWithItsSizeMakesNoOtherKind) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  for (int i = 0; i < 4; ++i) recording.processes.push_back(reader(50 + i, 100));
  const View view = build_view(recording, whole_life(recording));
  std::vector<Verdict> verdicts;
  for (const char* line :
       {"made at a.py:9", "made at a.py:9: 8.0 MiB ± 1 %", "most made at a.py:9: 7 MiB ± 12 %", "made at a.py:10"})
    verdicts.push_back({.id = "heap-growth",
                        .pid = 50 + static_cast<int>(verdicts.size()),
                        .headline = fmt::format("8.1 MiB live Python objects ({})", line)});
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(sections[0].alike.size(), 2U);
  EXPECT_TRUE(sections[1].alike.empty());
}

// Of one worker a sentence more is said, which stands with it, and of another one something else. Whether one is flat
// for long enough to say so is chance.
TEST(ShortText, WorkersOfWhichNearlyTheSameIsToBeSaidAreReportedOnce) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  for (int i = 0; i < 4; ++i) recording.processes.push_back(reader(50 + i, 100 + i));
  const View view = build_view(recording, whole_life(recording));
  std::vector<Verdict> verdicts;
  const auto say = [&](int pid, const char* id, const char* headline) {
    verdicts.push_back({.id = id, .pid = pid, .headline = headline});
  };
  say(52, "heap-growth", "8.1 MiB live heap (made at a.py:9)");
  say(50, "heap-growth", "8.1 MiB live heap (made at a.py:9), flat since 0.4 s");
  say(51, "heap-growth", "8.2 MiB live heap (made at a.py:9), flat since 1.2 s");
  say(53, "heap-growth", "8.1 MiB live heap (made at b.py:3)");
  say(52, "shared-memory-unmapped", "9.0 MiB in 12 files, the largest /dev/shm/torch_52_1");
  say(50, "shared-memory-unmapped", "9.1 MiB in 13 files, the largest /dev/shm/torch_50_7");
  say(50, "heap-retained", "8.0 MiB freed");
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(sections[0].process->account->pid, 50);
  EXPECT_EQ(alike_text(view, sections[0]),
            "The same holds for 2 more processes like it: pid 52 (RSS +102 MiB, but for the 3rd sentence and \"flat "
            "since\"), "
            "pid 51 (+101 MiB, but for the 2nd and the 3rd sentence); the 3 together grew by 303 MiB of their own");
  EXPECT_EQ(sections[1].process->account->pid, 53);
}

TEST(ShortText, OneThatWasFarSmallerHasOtherFigures) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  std::vector<Verdict> verdicts;
  for (int i = 0; i < 3; ++i) {
    recording.processes.push_back(reader(50 + i, i == 2 ? 60 : 100 - 10 * i));
    verdicts.push_back({.id = "heap-growth", .pid = 50 + i, .headline = "8.1 MiB live heap (made at a.py:9)"});
  }
  const View view = build_view(recording, whole_life(recording));
  EXPECT_EQ(alike_text(view, process_sections(view, verdicts)[0]),
            "The same holds, with other figures, for 2 more processes like it: pid 51 (RSS +90 MiB), pid 52 (+60 MiB, "
            "60 MiB at its peak); the 3 together grew by 250 MiB of their own");
}

TEST(ShortText, AWorkerThatWasKilledIsNotLikeOneThatEnded) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  std::vector<Verdict> verdicts;
  for (int i = 0; i < 3; ++i) {
    recording.processes.push_back(reader(50 + i, 100));
    recording.processes.back().ended_s = 9;
    verdicts.push_back({.id = "heap-growth", .pid = 50 + i, .headline = "8.1 MiB live heap (made at a.py:9)"});
  }
  recording.processes[2].end_signal = "SIGKILL";
  const View view = build_view(recording, whole_life(recording));
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(sections[0].alike.size(), 1U);
  EXPECT_EQ(sections[1].process->account->pid, 52);
  const std::string head = head_line(recording, *sections[1].process);
  EXPECT_NE(head.find("; killed by SIGKILL"), std::string::npos) << head;
}

TEST(ShortText, ProcessesThatWorkOnOtherFilesAreReportedOnce) {
  const std::vector<std::vector<std::string>> commands{
      {"python3", "-u", "convert.py", "--out=a.npy", "in/a.csv"},
      {"python3", "-u", "convert.py", "--out=b.npy", "in/b.csv"},
      {"python3", "-u", "convert.py", "--out=a.npy", "more/a.csv", "d.csv", "e.csv"},
      {"python3", "-u", "convert.py", "--quick", "in/a.csv"},
      {"python3", "-u", "check.py", "--out=a.npy", "in/a.csv"},
      {"python3", "-m", "convert", "in/a.csv"},
      {"python3", "-m", "check", "in/a.csv"},
      {"sh", "-c", "convert a.csv"},
      {"sh", "-c", "convert b.csv"}};
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  std::vector<Verdict> verdicts;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const int pid = 50 + static_cast<int>(i);
    recording.processes.push_back(reader(pid, 100));
    recording.processes.back().command = commands[i];
    verdicts.push_back({.id = "heap-growth", .pid = pid, .headline = "8.1 MiB live heap (made at a.py:9)"});
  }
  const View view = build_view(recording, whole_life(recording));
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  ASSERT_EQ(sections.size(), 7U);
  EXPECT_EQ(alike_text(view, sections[0]),
            "The same holds for 2 more processes like it: pid 51 (--out=b.npy, b.csv, RSS +100 MiB), pid 52 "
            "(more/a.csv, d.csv, +100 MiB); the 3 together grew by 300 MiB of their own");
}

// Not in the order in which they began. What imports and libraries cost is no reason for a block.
TEST(ShortText, TheProcessWithTheAnswerStandsFirst) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  for (int i = 0; i < 3; ++i) recording.processes.push_back(reader(50 + i, 100 + i));
  const View view = build_view(recording, whole_life(recording));
  const std::vector<Verdict> verdicts{{.id = "heap-growth", .pid = 51, .headline = "90 MiB live heap"},
                                      {.id = "imports", .pid = 52, .headline = "60 MiB by imports"},
                                      {.id = "library-code", .pid = 50, .headline = "50 MiB code"},
                                      {.id = "rss-double-counted", .headline = "RSS summed"}};
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(sections[0].process->account->pid, 51);
  EXPECT_EQ(sections[1].process->account->pid, 50) << "the main process";
  const std::string text = render_short(view, verdicts, {});
  EXPECT_EQ(text.find("by imports"), std::string::npos) << text;
  EXPECT_NE(text.find("RSS summed"), std::string::npos) << text;
  EXPECT_NE(text.find("1 more process (python3): "), std::string::npos) << text;
}

TEST(ShortText, ShellIsNotTheStoryWhenNothingGrew) {
  RecordingAccount recording = literal::quiet();
  ProcessAccount shell;
  shell.pid = 70;
  shell.command = {"sh", "-c", "python -c pass"};
  shell.accounts.push_back(literal::walk(0.1, {{Cause::file_cache, 1}}));
  recording.processes.insert(recording.processes.begin(), shell);
  EXPECT_EQ(short_text(recording), R"(python -c pass (pid 77)   RSS +7.0 MiB in 0.5 s
  ok       nothing grew worth naming (largest growth of a process: 7.0 MiB)
1 more process (sh): +1.0 MiB of its own
)");
}

TEST(ShortText, SaysWhatIsMissing) {
  RecordingAccount recording = literal::quiet();
  recording.info.complete = false;
  recording.info.incomplete_why = "the collector was killed";
  recording.info.lost_events = 12;
  EXPECT_EQ(short_text(recording), R"(python -c pass (pid 77)   RSS +7.0 MiB in 0.5 s
  info     nothing grew worth naming in what was recorded (largest growth of a process: 7.0 MiB)
incomplete: the collector was killed
12 events were lost: lines may be missing
)");
}

// By name, where processes of the job run yet; helpers that end a moment after it are none.
TEST(ShortText, SaysWhichProcessesRunYet) {
  RecordingAccount recording = literal::quiet();
  recording.info.complete = false;
  recording.info.incomplete_why = "still running";
  const auto says = [&](const std::string& line) { return short_text(recording).find(line) != std::string::npos; };
  recording.processes.front().ended_s = 1;
  EXPECT_TRUE(says("incomplete: still running\n"));
  for (int pid = 78; pid < 83; ++pid)
    recording.processes.push_back(literal::python_process(pid, {"/usr/bin/python3", "serve.py"}));
  EXPECT_TRUE(
      says("incomplete: still running: python3 serve.py (pid 78), python3 serve.py (pid 79), python3 serve.py\n"
           "  (pid 80) and 2 more\n"))
      << short_text(recording);
  for (ProcessAccount& process : recording.processes)
    process.command = {"python3", "-c", "from multiprocessing.resource_tracker import main;main(7)"};
  EXPECT_FALSE(says("incomplete"));
}

TEST(Text, OfADamagedRecordingNobodyNeedsDoNothing) {
  RecordingAccount recording = literal::quiet();
  recording.info.complete = false;
  recording.info.incomplete_why = "some of its files are damaged";
  const auto text_of = [&] {
    const View view = build_view(recording, whole_life(recording));
    return render_text(view, find_verdicts(view), {});
  };
  std::string text = text_of();
  EXPECT_EQ(text.find("Nothing to do"), std::string::npos) << text;
  EXPECT_LT(text.find("\nincomplete: some of its files are damaged\n"), text.find("Memory by process")) << text;
  EXPECT_NE(text.find("at its peak (shared pages count once; partly estimated\n    from page walks)"),
            std::string::npos)
      << text;
  recording.processes[0].accounts.clear();
  text = text_of();
  EXPECT_NE(text.find("no memory was read: the recording is incomplete: some of its files are damaged"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find(" 0 B"), std::string::npos) << text;
}

TEST(ShortText, ColourOnlyWhenAskedFor) {
  EXPECT_EQ(short_text(literal::quickstart()).find('\033'), std::string::npos);
  TextStyle style;
  style.colour = true;
  EXPECT_NE(short_text(literal::quickstart(), style).find("\033[33mwarning\033[0m  2 workers"), std::string::npos);
}

TEST(ShortText, HostileNamesDoNotReachTheTerminal) {
  RecordingAccount recording = literal::quiet();
  recording.processes[0].command = {"py\033]0;x\007thon", "a\nb", "\xff\xfe", "\xc2\x9b"};
  const std::string text = short_text(recording);
  EXPECT_EQ(text.substr(0, text.find(" (pid")), "py?]0;x?thon a b ?? ??");
}

TEST(Printable, WhatNobodySeesIsReplaced) {
  for (const char* hidden : {"\u061c", "\u200b", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2060",
                             "\u2066", "\u2069", "\ufeff"})
    EXPECT_EQ(printable(std::string("a") + hidden + "b"), "a?b") << hidden;
  for (const char* seen : {"\u200a", "\u2010", "\u2027", "\u202f", "\u205f", "\u2070", "ä", "日本", "א", "😀"})
    EXPECT_EQ(printable(seen), seen);
  EXPECT_EQ(printable("a\xc2\x80z\xc2\x9f"), "a??z??");
}

// Names of 3000 characters, with and without blanks.
RecordingAccount with_long_names() {
  RecordingAccount recording = literal::quickstart();
  const std::string name(3000, 'n');
  std::string blanks;
  for (int i = 0; i < 600; ++i) blanks += "int, ";
  const StackId made = literal::python_stack(recording.stacks, "/home/" + name + ".py", 24, "load_" + name);
  const StackId called = literal::native_stack(recording.stacks, {{"f<" + blanks + ">", "/opt/" + name}});
  ProcessAccount process = literal::python_process(9, {"/bin/" + name, name});
  process.accounts.push_back(literal::walk(1, {{Cause::heap_live, 90, made, "", 0},
                                               {Cause::file_cache, 80, made, "/data/" + name, 0},
                                               {Cause::anonymous, 70, called, "", 0}}));
  recording.processes.push_back(process);
  recording.info.path = "/tmp/" + name;
  recording.info.notes = {name};
  recording.phases.push_back({name, 1, 2});
  recording.marks.push_back({name, 1});
  return recording;
}

TEST(Text, NoLineIsWiderThanItMayBe) {
  for (const RecordingAccount& recording : {literal::quickstart(), literal::quiet(), with_long_names()}) {
    const View view = build_view(recording, whole_life(recording));
    const std::vector<Verdict> verdicts = find_verdicts(view);
    for (const std::size_t columns : {60U, 80U, 100U, 180U})
      for (const bool by_touch : {false, true}) {
        const TextStyle style{.stacks = true, .columns = columns, .by_touch = by_touch};
        EXPECT_LE(widest_line(render_text(view, verdicts, style)), columns) << render_text(view, verdicts, style);
        EXPECT_LE(widest_line(render_short(view, verdicts, style)), columns);
      }
  }
}

TEST(Text, LinesGoOnBelowTheirBeginning) {
  TextStyle style;
  style.columns = 60;
  EXPECT_NE(short_text(literal::quickstart(), style).find("\n           inherited (fork COW;"), std::string::npos)
      << short_text(literal::quickstart(), style);
}

TEST(Wrapped, AtBlanks) {
  EXPECT_EQ(wrapped("aa bb cc dd", "- ", "  ", 7), "- aa bb\n  cc dd\n");
  EXPECT_EQ(wrapped("  aa bb", "", " ", 5), "  aa\n bb\n");  // what a line begins with stays
  EXPECT_EQ(wrapped("aa   bb", "", "", 9), "aa   bb\n");
  EXPECT_EQ(wrapped("abcdefghij kl", "", "", 7), "abc…hij\nkl\n");
  EXPECT_EQ(wrapped("", "x", "", 7), "x\n");
  EXPECT_EQ(middle_shortened("äöüäöüä", 5), "äö…üä");
  EXPECT_EQ(middle_shortened("abc", 3), "abc");
}

TEST(Tables, WhatDoesNotFitIsShortenedOrStandsBelow) {
  Table table({{"file"}, {"unshared growth", Table::Align::right}, {"says", Table::Align::left, Table::Fit::wrap}});
  table.add({"/usr/lib/x86_64/libtorch_cpu.so", "12.5", "what the kernel takes back when it needs memory"});
  EXPECT_EQ(table.text(60), R"(                           unshared
  file                       growth  says
  /usr/lib/x8…orch_cpu.so      12.5  what the kernel takes
                                     back when it needs
                                     memory
)");
  EXPECT_EQ(table.text(30), R"(                      unshared
  file                  growth
  /usr/lib/…h_cpu.so      12.5
  file        says
  /usr/…u.so  what the kernel
              takes back when
              it needs memory
)");
}

TEST(FullText, CausesPerProcess) {
  EXPECT_EQ(section(full_text(literal::quickstart()), "Memory by process and cause, MiB"),
            R"(  process                    cause               last  growth  at peak  unshared growth
  4711 python quickstart.py  file cache         517.0   517.0    517.0            513.0
                             live heap          130.0   130.0    130.0            130.0
                             whyrss itself        3.0     3.0      3.0              3.0
                             stacks               1.0     1.0      1.0              1.0
                             = RSS              651.0   651.0    651.0            647.0
  4712 python quickstart.py  copied since fork  124.0   124.0    124.0            124.0
                             shared since fork    6.0     6.0      6.0              0.0
                             file cache           4.0     4.0      4.0              0.0
                             = RSS              134.0   134.0    134.0            124.0
  4713 python quickstart.py  copied since fork  124.0   124.0    124.0            124.0
                             shared since fork    6.0     6.0      6.0              0.0
                             file cache           4.0     4.0      4.0              0.0
                             = RSS              134.0   134.0    134.0            124.0
)");
}

TEST(FullText, TopLines) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording), 4711);
  TextStyle style;
  style.top = 3;
  EXPECT_EQ(section(render_text(view, find_verdicts(view), style), "Lines with the most growth, MiB"),
            R"(  growth  cause       line                                 pid
   512.0  file cache  quickstart.py:18 in load (big.txt)  4711
   127.0  live heap   quickstart.py:24 in load            4711
     5.0  file cache  libc.so.6                           4711
)");
}

TEST(FullText, Interval) {
  const std::string text = full_text(literal::quickstart(), {6, 9.81});
  EXPECT_EQ(text.substr(0, text.find('\n')), "python quickstart.py (pid 4711)   RSS +1.0 MiB in 3.8 s from 6.0 s on");
  EXPECT_NE(text.find("\nMemory by process and cause, MiB, from 6.000 s to 9.810 s\n"), std::string::npos);
  EXPECT_NE(text.find("live heap          130.0    -3.0    130.0             -3.0\n"), std::string::npos);
}

TEST(FullText, AnIntervalWithoutLengthIsAMoment) {
  const std::string text = full_text(literal::quickstart(), {6, 6});
  EXPECT_TRUE(
      text.starts_with("python quickstart.py (pid 4711)   RSS 650 MiB at 6.000 s\n"
                       "  ok       the interval is a single moment, 6.000 s, in which nothing can grow\n"))
      << text;
  EXPECT_NE(text.find("\nMemory by process and cause, MiB, at 6.000 s\n"), std::string::npos);
  EXPECT_NE(section(text, "Lines with the most growth, MiB").find("(none grew)"), std::string::npos) << text;
  EXPECT_NE(full_text(literal::quickstart(), {6.01, 6.02}).find("  from 6.010 s to 6.020 s\n"), std::string::npos);
}

// The collector may spend some CPU time before it is limited, which is much of a short run.
TEST(FullText, MoreThanItsOverheadIsExplained) {
  RecordingAccount recording = literal::quickstart();
  recording.info.overhead_percent = 3;
  const auto cost = [&](double cpu_s, double duration_s) {
    recording.info.collector_cpu_s = cpu_s;
    recording.info.duration_s = duration_s;
    const std::string text = full_text(recording);
    return text.substr(text.find("whyrss itself took"));
  };
  EXPECT_EQ(cost(0.2, 10),
            "whyrss itself took 0.20 s of CPU time beside the program, 2.0 % of a core (--overhead 3)\n");
  EXPECT_EQ(cost(0.1, 0.5),
            "whyrss itself took 0.10 s of CPU time beside the program, 20.0 % of a core (--overhead 3 does not\n"
            "  limit the first 0.2 s of it, which show in a run of 0.5 s)\n");
  EXPECT_NE(cost(5, 10).find("(--overhead 3 is for each\n  core that"), std::string::npos) << cost(5, 10);
}

TEST(FullText, AnEndedProcessIsReportedAtItsPeakAndAtItsEnd) {
  RecordingAccount recording = literal::quickstart();
  ProcessAccount& process = recording.processes[0];
  process.accounts = {literal::walk(0.9, {{Cause::anonymous, 100}}), literal::walk(2, {{Cause::anonymous, 20}})};
  process.ended_s = 9.5;
  const std::string text = full_text(recording);
  EXPECT_NE(text.find(" = 20 mapped; 100 MiB at its peak at 0.9 s, 20\n  MiB at its end at 9.5 s\n"), std::string::npos)
      << text;
  process.accounts.pop_back();
  EXPECT_EQ(full_text(recording).find("at its peak at"), std::string::npos);
}

TEST(FullText, EndsThatNobodyWalkedAreNamed) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].unseen_s = 0;
  EXPECT_EQ(section(full_text(recording), "What was lost"), "  nothing; the recording is complete\n");
  recording.processes[0].unseen_s = 1.5;
  EXPECT_EQ(section(full_text(recording), "What was lost"),
            "  pid 4711 (python quickstart.py): last snapshot 1.5 s before its end\n");
}

TEST(FullText, NothingLost) {
  EXPECT_EQ(section(full_text(literal::quickstart()), "What was lost"), "  nothing; the recording is complete\n");
}

TEST(FullText, Losses) {
  RecordingAccount recording = literal::quickstart();
  recording.info.complete = false;
  recording.info.incomplete_why = "the collector was killed";
  recording.info.lost_events = 7;
  recording.info.lost_snapshots = 1;
  recording.info.notes = {"events.zst: 64 damaged bytes skipped"};
  recording.processes[1].lost_events = 7;
  recording.processes[2].traced = false;
  recording.processes[2].notes = {"statically linked"};
  recording.processes[2].accounts[0].skewed = true;
  EXPECT_EQ(section(full_text(recording), "What was lost"),
            R"(  incomplete: the collector was killed
  7 events lost: lines may be missing for memory allocated then; the totals are right
  1 snapshot lost: what came and went between two snapshots is not in the report
  events.zst: 64 damaged bytes skipped
  pid 4712 (python quickstart.py): 7 events lost
  pid 4713 (python quickstart.py): not traced, causes from the kernel alone, no lines
  pid 4713 (python quickstart.py): statically linked
  1 snapshot of memory that changed meanwhile: small differences to RSS
)");
}

TEST(FullText, LimitsOfTheMachine) {
  EXPECT_EQ(section(full_text(literal::quickstart()), "What this recording cannot tell"),
            "  no page-fault samples: who made pages resident is not known, only who mapped or allocated them\n"
            "  no write tracking: copies since fork come from the pages' exclusive bits\n");
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].accounts.back().has_liveness = false;
  EXPECT_NE(
      full_text(recording).find("\n  \"live heap\" is an estimate: what of the heap is live was not recorded page "
                                "by page everywhere\n"),
      std::string::npos);
  EXPECT_EQ(full_text(recording).find("its allocator is none"), std::string::npos);
  recording.processes[1].allocator = "other";
  EXPECT_NE(full_text(recording).find("\n  pid 4712: its allocator is none that is known here"), std::string::npos);
}

TEST(FullText, ProcessThatWasNeverWalked) {
  RecordingAccount recording = literal::quickstart();
  ProcessAccount gone = literal::python_process(99, {"/bin/true"});
  gone.ended_s = 1;
  recording.processes.push_back(gone);
  EXPECT_NE(full_text(recording).find("99 true                    (no snapshot)\n"), std::string::npos);
}

TEST(FullText, HelpersShareOneRow) {
  RecordingAccount recording = literal::quickstart();
  for (int pid : {98, 99}) {
    ProcessAccount shell = literal::python_process(pid, {"/bin/sh"});
    shell.ended_s = 0.1;
    recording.processes.push_back(shell);
  }
  const std::string text = full_text(recording);
  EXPECT_EQ(text.find("99 sh"), std::string::npos);
  EXPECT_NE(text.find("2 smaller processes"), std::string::npos);
  EXPECT_NE(text.find("2 smaller processes, each under 1 MiB of its own\n"), std::string::npos);
}

// The quickstart with so many workers more, which all copied and of which something was lost.
RecordingAccount with_workers(int count) {
  RecordingAccount recording = literal::quickstart();
  for (int i = 0; i < count; ++i) {
    ProcessAccount worker = recording.processes[1];
    worker.pid = 5000 + i;
    worker.lost_events = 1;
    recording.processes.push_back(std::move(worker));
  }
  return recording;
}

TEST(FullText, HundredsOfProcessesAreSummed) {
  const RecordingAccount recording = with_workers(300);
  const View view = build_view(recording, whole_life(recording));
  const std::vector<Verdict> verdicts = find_verdicts(view);
  const std::string text = render_text(view, verdicts, {});
  EXPECT_LT(std::ranges::count(text, '\n'), 200) << text;
  EXPECT_NE(section(text, "Processes, MiB").find("… and 293 smaller processes: sum"), std::string::npos) << text;
  EXPECT_NE(section(text, "Memory by process and cause, MiB").find(" smaller processes: sum  = RSS"),
            std::string::npos);
  EXPECT_NE(section(text, "Memory shared by forks").find(" smaller processes: "), std::string::npos);
  EXPECT_NE(section(text, "What was lost").find("\n  … and 290 more\n"), std::string::npos);
  const std::string whole = render_text(view, verdicts, {.top = 1000});
  EXPECT_EQ(whole.find("…"), std::string::npos);
  for (const char* title : {"Processes, MiB", "Memory by process and cause, MiB", "Memory shared by forks"})
    EXPECT_NE(section(whole, title).find("5299"), std::string::npos) << title;
}

// What several readers map is nobody's own: who the answer speaks of still has its rows.
TEST(FullText, WhoTheAnswerSpeaksOfHasRowsOfItsOwn) {
  RecordingAccount recording = literal::quickstart();
  for (int pid : {98, 99}) {
    ProcessAccount reader = literal::python_process(pid, {"reader"});
    reader.accounts.push_back(literal::walk(1, {{Cause::file_cache, 150, kEmptyStack, "/data/big.bin", 0}}));
    recording.processes.push_back(reader);
  }
  const std::string text = full_text(recording);
  EXPECT_NE(text.find("\nreader (pid 98)   RSS +150 MiB"), std::string::npos) << text;
  EXPECT_NE(section(text, "Memory by process and cause, MiB").find("  98 reader "), std::string::npos) << text;
  EXPECT_NE(section(text, "Processes, MiB").find("\n    98  "), std::string::npos) << text;
  EXPECT_NE(text.find("1 smaller process, under 1 MiB of its own\n"), std::string::npos) << text;
}

TEST(FullText, ProgramsOfSeveralLinesAreOneLine) {
  EXPECT_EQ(command_text({"/usr/bin/python3", "-c", "import time\n\tprint(1)\x1b"}),
            "python3 -c import time  print(1)?");
}

TEST(FullText, EmptyRecordingStillAnswers) {
  EXPECT_EQ(full_text(RecordingAccount{}).rfind("  info     no memory was read", 0), 0U);
}

// A process whose heap has these stacks, innermost frame first, of so many MiB each.
RecordingAccount heap_of(const std::vector<std::pair<std::vector<std::string>, int>>& stacks) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, 9);
  ProcessAccount process = literal::python_process(10, {"prog"});
  std::vector<literal::Part> parts;
  for (const auto& [functions, mib] : stacks) {
    std::vector<std::pair<std::string, std::string>> frames;
    for (const std::string& function : functions) {
      const bool is_library = function.starts_with("lib_");
      frames.emplace_back(function, is_library ? "/usr/lib/liba.so" : "/opt/prog");
    }
    parts.push_back({Cause::heap_live, mib, literal::native_stack(recording.stacks, frames)});
  }
  process.accounts.push_back(literal::walk(1, parts));
  recording.processes.push_back(process);
  return recording;
}

std::string callers_of(const RecordingAccount& recording) {
  const View view = build_view(recording, whole_life(recording));
  std::string text;
  for (const std::string& line : call_chain_lines(view, 10)) text += line + "\n";
  return text;
}

TEST(CallChains, ALoneCallerHasItsBytesWhereOtherStacksEnd) {
  EXPECT_EQ(callers_of(heap_of(
                {{{"malloc", "fill", "work", "main", "_start"}, 24}, {{"malloc", "fill", "work", "start_thread"}, 8}})),
            R"(32.0 MiB  live heap, fill (prog) (pid 10)
  work (prog)
  24.0  main (prog)
)");
  EXPECT_EQ(callers_of(heap_of({{{"malloc", "fill", "main", "_start"}, 24}, {{"malloc", "fill", "start_thread"}, 8}})),
            R"(32.0 MiB  live heap, fill (prog) (pid 10)
  24.0  main (prog)
)");
}

TEST(CallChains, WhatALineCalledStandsBelowItsCallers) {
  EXPECT_EQ(callers_of(heap_of({{{"malloc", "lib_grow", "lib_add", "fill", "main", "_start"}, 20},
                                {{"malloc", "lib_new", "lib_add", "fill", "main", "_start"}, 4},
                                {{"malloc", "fill", "main", "_start"}, 8}})),
            R"(32.0 MiB  live heap, fill (prog) (pid 10)
  main (prog)
  inside of it:
    24.0  lib_add (liba.so)
          20.0  lib_grow (liba.so)
          4.0  lib_new (liba.so)
)");
}

TEST(CallChains, OfTheLibraryOfTheLanguageTheOutermostCallIsShown) {
  EXPECT_EQ(callers_of(heap_of({{{"operator new(unsigned long)", "std::vector<int>::_M_realloc_insert(int)",
                                  "std::vector<int>::push_back(int)", "fill", "std::invoke()", "std::thread::run()",
                                  "work", "std::panic::catch_unwind", "std::rt::lang_start", "main"},
                                 20}})),
            R"(20.0 MiB  live heap, fill (prog) (pid 10)
  std::thread::run() (prog)
  work (prog)
  main (prog)
  inside of it:
    std::vector<int>::push_back(int) (prog)
)");
}

TEST(Markdown, TablesAndEscapes) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].command = {"python", "a|b.py"};
  const View view = build_view(recording, whole_life(recording));
  const std::string text = render_markdown(view, find_verdicts(view), {});
  EXPECT_NE(text.find("- **warning** pid 4711: 2 workers copied 124 MiB each"), std::string::npos);
  EXPECT_NE(text.find("| 4711 python a\\|b.py | file cache | 517.0 | 517.0 | 517.0 | 513.0 |\n"), std::string::npos);
  EXPECT_NE(text.find("| --- | --- | ---: | ---: | ---: | ---: |\n"), std::string::npos);
}

TEST(Format, Sizes) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(120 * 1024), "120 KiB");
  EXPECT_EQ(size_text(kMiB * 94 / 10), "9.4 MiB");
  EXPECT_EQ(size_text(10 * kMiB), "10 MiB");
  EXPECT_EQ(size_text(2048 * kMiB), "2048 MiB");
  EXPECT_EQ(size_text(12 * 1024 * kMiB), "12.0 GiB");
  EXPECT_EQ(growth_text(-3 * kMiB), "-3.0 MiB");
  EXPECT_EQ(growth_text(517 * kMiB), "+517 MiB");
  EXPECT_EQ(mib(-1), "0.0");
}

TEST(Format, ShortenedCountsCodePoints) {
  EXPECT_EQ(shortened("äöüäöü", 6), "äöüäöü");
  EXPECT_EQ(shortened("äöüäöüä", 6), "äöü...");
}

}  // namespace
}  // namespace whyrss::text_report_test
