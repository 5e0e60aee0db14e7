// What people read, to the letter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "literal_accounts.h"
#include "report/format.h"
#include "report/markdown.h"
#include "report/table.h"
#include "report/text.h"

namespace whyrss {
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
            R"(python quickstart.py (pid 4711)   RSS +651 MiB in 9.8 s
  ok       512 MiB file cache of big.txt (mapped at quickstart.py:18 in load): reclaimable, not a leak
  info     130 MiB live Python objects (kept at quickstart.py:24 in load)
  warning  2 workers copied 124 MiB each of what they inherited (fork COW; objects made at quickstart.py:24)
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
  EXPECT_EQ(short_text(recording), R"(python quickstart.py (pid 4711)   RSS +651 MiB in 9.8 s
  ok       512 MiB file cache of big.txt (mapped at quickstart.py:18 in load): reclaimable, not a leak
  info     130 MiB live Python objects (kept at quickstart.py:24 in load)
  warning  2 workers copied 124 MiB each of what they inherited (fork COW; objects made at quickstart.py:24)
3 more processes (git, sh): +3.0 MiB of their own together
)");
}

// A copy of the quickstart's main process, without what its workers copied.
ProcessAccount reader(int pid, std::int64_t file_mib) {
  ProcessAccount account = literal::quickstart().processes.front();
  account.pid = pid;
  account.command = {"/usr/bin/python3", "reader.py", fmt::format("--rank={}", pid)};
  account.accounts = {literal::walk(1, {}), literal::walk(9, {{Cause::file_cache, file_mib}})};
  return account;
}

TEST(ShortText, ProcessesOfWhichTheSameIsToBeSaidAreToldOnce) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.clear();
  for (int i = 0; i < 11; ++i) recording.processes.push_back(reader(50 + i, 100 + i));
  recording.processes.push_back(reader(70, 100));
  recording.processes.back().command[1] = "other.py";
  const std::string text = short_text(recording);
  std::size_t headlines = 0;
  for (std::size_t at = text.find("file cache"); at != std::string::npos; at = text.find("file cache", at + 1))
    ++headlines;
  EXPECT_EQ(headlines, 2U) << text;
  EXPECT_NE(text.find("python3 reader.py --rank=50 (pid 50)"), std::string::npos) << text;
  EXPECT_NE(text.find("python3 other.py --rank=70 (pid 70)"), std::string::npos) << text;
  EXPECT_NE(text.find("The same holds for 10 more processes like it: pid 51 (RSS +101 MiB), pid 52"), std::string::npos)
      << text;
  EXPECT_NE(text.find("and 2 more\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("of their own together"), std::string::npos) << text;
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
1 more process (sh): +1.0 MiB of their own together
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
  EXPECT_NE(text.find("at its peak (shared pages count once; partly not read then, but told from page walks)"),
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
  EXPECT_EQ(text.substr(0, text.find(" (pid")), "py?]0;x?thon a?b ?? ??");
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
  EXPECT_EQ(text.substr(0, text.find('\n')), "python quickstart.py (pid 4711)   RSS +1.0 MiB in 3.8 s");
  EXPECT_NE(text.find("\nMemory by process and cause, MiB, from 6.000 s to 9.810 s\n"), std::string::npos);
  EXPECT_NE(text.find("live heap          130.0    -3.0    130.0             -3.0\n"), std::string::npos);
}

TEST(FullText, AnEndedProcessIsToldAtItsPeakAndAtItsEnd) {
  RecordingAccount recording = literal::quickstart();
  ProcessAccount& process = recording.processes[0];
  process.accounts = {literal::walk(0.9, {{Cause::anonymous, 100}}), literal::walk(2, {{Cause::anonymous, 20}})};
  process.ended_s = 9.5;
  const std::string text = full_text(recording);
  EXPECT_NE(text.find("; 100 MiB at its peak at 0.9 s, 20 MiB at its end at 2.0 s\n"), std::string::npos);
  process.accounts.pop_back();
  EXPECT_EQ(full_text(recording).find("at its peak at"), std::string::npos);
}

TEST(FullText, EndsThatNobodyLookedAtAreNamed) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].unseen_s = 0;
  EXPECT_EQ(section(full_text(recording), "What was lost"), "  nothing; the recording is complete\n");
  recording.processes[0].unseen_s = 1.5;
  EXPECT_EQ(section(full_text(recording), "What was lost"),
            "  pid 4711 (python quickstart.py): last looked at 1.5 s before its end\n");
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
  1 snapshot lost: what came and went between two looks is not seen
  events.zst: 64 damaged bytes skipped
  pid 4712 (python quickstart.py): 7 events lost
  pid 4713 (python quickstart.py): not traced, causes from the kernel alone, no lines
  pid 4713 (python quickstart.py): statically linked
  1 look at memory that changed meanwhile: small differences to RSS
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
  EXPECT_NE(full_text(recording).find("99 true                    (never seen by a walk)\n"), std::string::npos);
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

TEST(FullText, EmptyRecordingStillAnswers) {
  EXPECT_EQ(full_text(RecordingAccount{}).rfind("  info     no memory was read", 0), 0U);
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
}  // namespace whyrss
