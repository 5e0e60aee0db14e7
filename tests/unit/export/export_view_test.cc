// What exports make of a view, and that every format takes every view.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "export/export_format.h"
#include "literal_accounts.h"
#include "report/view/build_view.h"
#include "report/view/interval.h"

namespace whyrss::export_view_test {
namespace {

using literal::kMiB;
using literal::walk;

View whole(const RecordingAccount& recording) { return build_view(recording, whole_life(recording)); }

std::string exported(std::string_view format, const View& view, std::vector<std::string>* remarks = nullptr,
                     ExportValue value = ExportValue::resident) {
  std::string bytes;
  const ExportFormat* found = find_export_format(format);
  if (found == nullptr) return "no such format";
  auto said = found->write({&view, value}, [&](std::string_view piece) { bytes += piece; });
  if (remarks != nullptr) *remarks = std::move(said);
  return bytes;
}

TEST(ExportView, RowsSumToTheCausesOfTheView) {
  const RecordingAccount recording = literal::quickstart();
  const View view = whole(recording);
  std::map<std::pair<const ProcessView*, Cause>, std::array<std::int64_t, 3>> sums;
  for (const ExportRow& row : export_rows(view)) {
    auto& sum = sums[{row.process, row.cause->cause}];
    sum[0] += row.value(ExportValue::resident);
    sum[1] += row.value(ExportValue::growth);
    sum[2] += row.value(ExportValue::at_peak);
  }
  std::size_t causes = 0;
  for (const ProcessView& process : view.processes)
    for (const CauseView& cause : process.causes) {
      ++causes;
      EXPECT_EQ((sums[{&process, cause.cause}]),
                (std::array<std::int64_t, 3>{cause.rss.last, cause.rss.growth(), cause.at_peak}));
    }
  EXPECT_EQ(sums.size(), causes);
  EXPECT_GT(causes, 5U);
}

TEST(ExportView, CausesComeInTheirOwnOrder) {
  const RecordingAccount recording = literal::quickstart();
  const View view = whole(recording);
  EXPECT_EQ(causes_of(export_rows(view)), (std::vector<Cause>{Cause::whyrss, Cause::file_cache, Cause::fork_cow,
                                                              Cause::fork_shared, Cause::stack, Cause::heap_live}));
}

TEST(ExportView, FramesAlwaysHaveAName) {
  StackTable stacks;
  const auto native = [&](const std::string& function, const std::string& module) {
    Frame frame;
    frame.function = function;
    frame.module = stacks.intern(Module{module, ""});
    frame.address = 0x1a2b;
    return export_frame(stacks, stacks.intern(frame)).function;
  };
  EXPECT_EQ(native("load", "/usr/lib/libx.so"), "load");
  EXPECT_EQ(native("", "/usr/lib/libx.so"), "libx.so+0x1a2b");
  EXPECT_EQ(native("", ""), "?");
  EXPECT_EQ(native("a\x1b[31m\n\xff", ""), "a?[31m??");
}

TEST(ExportView, StacksAreOutermostFirstBetweenProcessCauseAndMapping) {
  RecordingAccount recording = literal::quiet();
  const StackId stack = literal::python_stack(recording.stacks, "/home/u/a.py", 7, "load");
  recording.processes[0].accounts.push_back(walk(0.45, {{Cause::file_cache, 9, stack, "/tmp/big"}}));
  const View view = whole(recording);
  for (const ExportRow& row : export_rows(view)) {
    if (row.site->stack != stack) continue;
    std::vector<std::string> names;
    for (const ExportFrame& frame : labelled_stack(recording.stacks, row)) names.push_back(frame.function);
    EXPECT_EQ(names,
              (std::vector<std::string>{"python (pid 77)", "file_cache", "load", "python3.11+0x1000", "/tmp/big"}));
    return;
  }
  FAIL() << "the site is missing";
}

TEST(ExportView, AProcessIsNamedAfterItsScript) {
  ProcessAccount process;
  process.pid = 7;
  const auto label = [&](const std::vector<std::string>& command) {
    process.command = command;
    return process_label(process);
  };
  EXPECT_EQ(label({"/usr/bin/python3", "/home/u/train.py", "-n"}), "train.py (pid 7)");
  EXPECT_EQ(label({"python3.11", "-m", "train"}), "python3.11 (pid 7)");
  EXPECT_EQ(label({"/opt/server", "x.py"}), "server (pid 7)");
  EXPECT_EQ(label({}), "? (pid 7)");
}

TEST(ExportView, MomentsEndWithTheLastFigures) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].accounts.push_back(walk(9.5002, {{Cause::heap_live, 600}}));  // within a millisecond
  const View view = build_view(recording, {.from_s = 5, .to_s = 9.8});
  const std::vector<CauseMoment> moments = cause_moments(view.processes[0]);
  ASSERT_EQ(moments.size(), 2U);
  EXPECT_EQ(moments[0].time_s, 5);
  EXPECT_EQ(moments[1].rss_bytes, view.processes[0].rss.last);
  for (const CauseMoment& moment : moments) {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : moment.bytes) sum += bytes;
    EXPECT_EQ(sum, moment.rss_bytes);
  }
}

TEST(ExportView, TheBeginHasMicroseconds) {
  RecordingInfo info;
  info.started = "1970-01-02T00:00:01.000250Z";
  EXPECT_EQ(started_ns(info), 86'401'000'250'000);
  info.started = "1970-01-01T00:00:00Z";
  EXPECT_EQ(started_ns(info), 0);
  info.started = "yesterday";
  EXPECT_EQ(started_ns(info), 0);
}

TEST(ExportView, SaysWhatIsMissing) {
  RecordingAccount recording = literal::quickstart();
  EXPECT_TRUE(missing_remarks(whole(recording)).empty());
  recording.processes[1].accounts.clear();
  EXPECT_EQ(missing_remarks(whole(recording)).at(0), "of 1 of 3 processes nothing is in it: they were in no snapshot");
  for (ProcessAccount& process : recording.processes) process.accounts.clear();
  recording.info.complete = false;
  recording.info.incomplete_why = "cut\nshort";
  recording.info.lost_events = 7;
  EXPECT_EQ(missing_remarks(whole(recording)), (std::vector<std::string>{"no process was walked: the export is empty",
                                                                         "the recording is incomplete: cut?short",
                                                                         "7 events were lost: lines may be missing"}));
}

TEST(Collapsed, AddsUpEqualStacksAndTellsWhatShrank) {
  RecordingAccount recording = literal::quiet();
  std::vector<Account>& accounts = recording.processes[0].accounts;
  const StackId stack = literal::native_stack(recording.stacks, {{"f;g", "/x"}});
  accounts.push_back(walk(0.45, {{Cause::heap_live, 1}, {Cause::fork_cow, 2, stack}}));
  accounts.back().slices.open().push_back(
      {{Cause::fork_cow, stack, "", true}, kMiB, kMiB});  // the same but in a large block
  accounts.back().rss_bytes += kMiB;
  const View view = build_view(recording, {.from_s = 0.2, .to_s = 0.5});
  std::vector<std::string> remarks;
  EXPECT_EQ(exported("collapsed", view, &remarks, ExportValue::growth), "python (pid 77);fork_cow;f:g 3145728\n");
  EXPECT_EQ(remarks, (std::vector<std::string>{"left out: 2 stacks that shrank, -5.0 MiB (-5242880 bytes) in all: "
                                               "this format has no negative sizes"}));
}

TEST(ExportFormats, TakeEveryView) {
  RecordingAccount nothing;
  nothing.info = literal::quiet().info;
  RecordingAccount unseen = literal::quiet();
  unseen.processes[0].accounts.clear();
  RecordingAccount once = literal::quiet();
  once.processes[0].accounts.resize(1);
  RecordingAccount many = literal::quickstart();
  for (const RecordingAccount* recording : {&nothing, &unseen, &once, &many})
    for (const ExportFormat& format : export_formats()) {
      const View view = whole(*recording);
      const bool is_empty = exported(format.name, view).empty();
      EXPECT_EQ(is_empty, format.name == "collapsed" && export_rows(view).empty()) << format.name;
    }
  EXPECT_EQ(find_export_format("gif"), nullptr);
}

TEST(ExportFormats, SpeedscopeOfHostileNamesIsJson) {
  RecordingAccount recording = literal::quiet();
  const StackId stack = literal::python_stack(recording.stacks, "/a\"b\\c\xff", 7, "f\"\x01</script>");
  recording.processes[0].accounts.push_back(walk(0.45, {{Cause::heap_live, 9, stack}}));
  const View view = whole(recording);
  const auto document = nlohmann::json::parse(exported("speedscope", view));
  bool found = false;
  for (const auto& frame : document["shared"]["frames"])
    found |= frame["name"] == "f\"?</script>" && frame["file"] == "/a\"b\\c?";
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace whyrss::export_view_test
