// Annotations of GitHub Actions, and the report in Markdown as its job summary takes it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "literal_accounts.h"
#include "report/render/github.h"
#include "report/render/markdown.h"
#include "report/view/build_view.h"
#include "report/wording/table.h"

namespace whyrss::github_report_test {
namespace {

using literal::kMiB;

std::string github(const RecordingAccount& recording, const std::string& root = "") {
  const View view = build_view(recording, whole_life(recording));
  return render_github(view, find_verdicts(view), root);
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// A process that keeps `mib` of live heap, allocated at `file`:`line`.
ProcessAccount keeping(StackTable& stacks, int pid, const std::string& file, int line, std::int64_t mib,
                       const std::string& function = "f") {
  ProcessAccount process = literal::python_process(pid, {"python3", fmt::format("job{}.py", pid)});
  const StackId stack = literal::python_stack(stacks, file, line, function);
  process.accounts = {literal::walk(0.1, {}), literal::walk(1, {{Cause::heap_live, mib, stack}})};
  return process;
}

RecordingAccount recording_of(int processes) {
  RecordingAccount recording;
  recording.info = literal::finished({"python3", "job.py"}, 2);
  for (int i = 0; i < processes; ++i)
    recording.processes.push_back(keeping(recording.stacks, 100 + i, "/checkout/src/job.py", 10 + i, 200));
  return recording;
}

TEST(Github, ANoticeStandsBesideItsLine) {
  const std::string text = github(recording_of(1), "/checkout");
  EXPECT_TRUE(
      text.starts_with("::notice file=src/job.py,line=10,title=whyrss%3A heap-growth::python3 job100.py (pid 100): "
                       "200 MiB live"))
      << text;
  EXPECT_EQ(count(text, "\n"), 1U);
  EXPECT_NE(text.find("%0A"), std::string::npos);  // the reason and the advice, as lines of one message
}

TEST(Github, OnlyFilesOfTheCheckoutAreRelative) {
  EXPECT_NE(github(recording_of(1), "/checkout/").find("file=src/job.py,"), std::string::npos);
  EXPECT_NE(github(recording_of(1), "/check").find("file=/checkout/src/job.py,"), std::string::npos);
  EXPECT_NE(github(recording_of(1)).find("file=/checkout/src/job.py,"), std::string::npos);
}

TEST(Github, WarningsComeFirstAndWithoutALineToo) {
  const auto all = lines(github(literal::quickstart()));
  ASSERT_GE(all.size(), 2U);
  EXPECT_TRUE(all[0].starts_with("::warning ")) << all[0];
  for (const std::string& line : all) EXPECT_EQ(line.find("file-cache-growth"), std::string::npos);  // "ok"

  RecordingAccount killed = recording_of(1);
  killed.info.exit_signal = "SIGKILL";
  killed.info.oom_killed = true;
  bool found = false;
  for (const std::string& line : lines(github(killed)))
    found = found || (line.starts_with("::warning ") && line.find("kill") != std::string::npos);
  EXPECT_TRUE(found) << github(killed);
}

TEST(Github, TheLineOfTheHeadlineIsTakenAndNotALongerNumber) {
  RecordingAccount recording = recording_of(0);
  ProcessAccount process = keeping(recording.stacks, 7, "/b/one.py", 12, 10);
  const StackId most = literal::python_stack(recording.stacks, "/a/one.py", 1, "g");
  process.accounts.back() =
      literal::walk(1, {{Cause::heap_live, 300, most},
                        {Cause::heap_live, 10, literal::python_stack(recording.stacks, "/b/one.py", 12, "f")}});
  recording.processes.push_back(process);
  EXPECT_NE(github(recording).find("file=/a/one.py,line=1,"), std::string::npos) << github(recording);
}

TEST(Github, AtMostTenOfALevel) {
  const std::string text = github(recording_of(14));
  EXPECT_EQ(count(text, "::notice "), kMostAnnotations) << text;
  EXPECT_NE(text.find("\nwhyrss: 4 more verdicts"), std::string::npos) << text;
  EXPECT_EQ(github(recording_of(10)).find("more verdict"), std::string::npos);
}

TEST(Github, ProcessesAlikeHaveOneAnnotation) {
  RecordingAccount recording = recording_of(0);
  for (int i = 0; i < 5; ++i)
    recording.processes.push_back(keeping(recording.stacks, 50 + i, "/checkout/src/job.py", 10, 200 + i));
  const std::string text = github(recording);
  EXPECT_EQ(count(text, "::notice "), 1U) << text;
  EXPECT_NE(text.find("%0AThe same holds for 4 more processes like it: pid 53 (RSS +203 MiB), pid 52"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("more verdict"), std::string::npos) << text;
}

TEST(Github, HostileNamesStayInTheirPlace) {
  const std::string bad = "/x/a,line=1::b%0A\r\n::error file=c::d\x1b[31m.py";
  RecordingAccount recording = recording_of(0);
  recording.processes.push_back(keeping(recording.stacks, 8, bad, 3, 200, "f\n::set-output name=x::y"));
  recording.processes.back().command = {"python3", "a\n::add-mask::x"};
  const std::string text = github(recording);
  ASSERT_FALSE(text.empty());
  for (const std::string& line : lines(text))
    EXPECT_TRUE(line.starts_with("::notice file=/x/a%2Cline=1%3A%3Ab%250A")) << line;
  EXPECT_EQ(count(text, "\n"), 1U) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Github, EscapesAsTheRunnerDecodes) {
  EXPECT_EQ(github_escaped("50 % :,\r\n"), "50 %25 :,%0D%0A");
  EXPECT_EQ(github_property("50 % :,\r\n"), "50 %25 %3A%2C%0D%0A");
}

// GitHub takes 1 MiB of a step.
constexpr std::size_t kSummaryBytes = 1 << 20;

std::string markdown(const RecordingAccount& recording) {
  const View view = build_view(recording, whole_life(recording));
  return render_markdown(view, find_verdicts(view), {});
}

TEST(JobSummary, OfThousandsOfProcessesIsShort) {
  const std::string text = markdown(recording_of(5000));
  EXPECT_LT(text.size(), kSummaryBytes / 4);
  EXPECT_NE(text.find("4900 more verdicts are left out here"), std::string::npos);
  EXPECT_NE(text.find("more rows are left out here"), std::string::npos);
  EXPECT_NE(text.find("## Processes, MiB"), std::string::npos);  // all parts are there
  EXPECT_EQ(markdown(recording_of(20)).find("left out here"), std::string::npos);
}

TEST(JobSummary, IsBoundedWhateverNamesAreThere) {
  RecordingAccount recording = recording_of(0);
  recording.processes.push_back(keeping(recording.stacks, 8, "/a.py", 3, 200, std::string(kSummaryBytes, '|')));
  const std::string text = markdown(recording);
  EXPECT_LT(text.size(), kSummaryBytes);
  EXPECT_TRUE(text.ends_with("left out here: it would be over 1 MB.\n"));
}

// Cells of a table row, where `\|` is no border.
std::size_t cells(const std::string& row) {
  std::size_t borders = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == '\\')
      ++i;
    else if (row[i] == '|')
      ++borders;
  }
  return borders - 1;
}

TEST(JobSummary, HostileNamesBreakNoTable) {
  RecordingAccount recording = recording_of(0);
  recording.processes.push_back(
      keeping(recording.stacks, 8, "/x/a|b\\|c\n| --- |<script>`.py", 3, 200, "f|g\n\n# h](x)$y$ &lt;"));
  recording.processes.back().command = {"python3", "a\n|b|<img src=x>", "~~c~~"};
  const std::string text = markdown(recording);
  EXPECT_NE(text.find("a\\|b"), std::string::npos) << text;
  std::size_t columns = 0, rows = 0;
  for (const std::string& line : lines(text)) {
    if (!line.starts_with("|")) {
      columns = 0;
      continue;
    }
    if (columns == 0) columns = cells(line);
    EXPECT_EQ(cells(line), columns) << line;
    ++rows;
  }
  EXPECT_GT(rows, 6U);
  for (const char* bad : {"<script", "<img", " # h", "|b|", "$y$ ", "~~c"})
    for (std::size_t at = text.find(bad); at != std::string::npos; at = text.find(bad, at + 1))
      EXPECT_EQ(text[at - (bad[0] == ' ' ? 0 : 1)], '\\') << bad << " in " << text.substr(at > 40 ? at - 40 : 0, 80);
}

}  // namespace
}  // namespace whyrss::github_report_test
