// Who made memory resident, as the reports show it: growth per line, what nobody was seen to touch, both orders.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "literal_accounts.h"
#include "report/render/json.h"
#include "report/render/markdown.h"
#include "report/render/text.h"
#include "report/view/build_view.h"

namespace whyrss::touch_report_test {
namespace {

using literal::kMiB;

// A file of 100 MiB that is mapped at one line and read at two; 60 MiB that one call read into fresh memory.
RecordingAccount reading() {
  RecordingAccount recording;
  recording.info.complete = true;
  recording.info.duration_s = 10;
  StackTable& stacks = recording.stacks;
  const StackId mapper = literal::python_stack(stacks, "/home/ann/load.py", 3, "load");
  const StackId scan = literal::python_stack(stacks, "/home/ann/scan.py", 9, "scan");
  const StackId check = literal::python_stack(stacks, "/home/ann/check.py", 4, "check");
  ProcessAccount process = literal::python_process(7, {"python3", "scan.py"});
  process.touch = {.armed = true,
                   .off_reason = {},
                   .samples = 10,
                   .faults = 610,
                   .missed = 0,
                   .counted_kernel_faults = 200,
                   .all_faults = 1000,
                   .sampled_of_all = 610};
  for (const std::int64_t at : {1, 2}) {
    Account walk = literal::walk(static_cast<double>(at), {{Cause::file_cache, 50 * at, mapper, "/data/train.bin"},
                                                           {Cause::anonymous, 60, mapper}});
    for (Slice& slice : walk.slices.open()) {
      if (slice.site.cause == Cause::file_cache)
        slice.touched = {{.stack = scan, .bytes = 40 * at * kMiB, .variance = 1e10},
                         {.stack = check, .bytes = 5 * kMiB}};
      else
        slice.touched = {{.stack = scan, .bytes = 60 * kMiB, .by_kernel = true}};
    }
    process.accounts.push_back(std::move(walk));
  }
  recording.processes.push_back(std::move(process));
  return recording;
}

const SiteView& file_site(const View& view) { return view.processes.front().find(Cause::file_cache)->sites.front(); }

TEST(TouchView, GrowsByLineAndTheRestIsNobodys) {
  const RecordingAccount recording = reading();
  const View view = build_view(recording, {1, 2});
  const std::vector<TouchView>& touched = file_site(view).touched();
  ASSERT_EQ(touched.size(), 3U);
  EXPECT_EQ(touched[0].growth, 40 * kMiB);
  EXPECT_EQ(touched[0].resident, 80 * kMiB);
  EXPECT_DOUBLE_EQ(touched[0].variance, 2e10);
  EXPECT_EQ(touched[1].stack, kEmptyStack);
  EXPECT_EQ(touched[1].growth, 10 * kMiB);
  EXPECT_EQ(touched[1].resident, 15 * kMiB);
  EXPECT_EQ(touched[2].growth, 0);
  EXPECT_EQ(touched[0].growth + touched[1].growth + touched[2].growth, file_site(view).growth);
}

TEST(TouchView, IsEmptyWhereNothingIsKnown) {
  RecordingAccount recording = reading();
  for (Account& walk : recording.processes.front().accounts)
    for (Slice& slice : walk.slices.open()) slice.touched.clear();
  EXPECT_TRUE(file_site(build_view(recording, {0, 2})).touched().empty());
}

TEST(TouchReport, JsonListsThemAndTheKernelsFaults) {
  const RecordingAccount recording = reading();
  const View view = build_view(recording, {0, 2});
  const auto report = nlohmann::json::parse(render_json(view, {}, {.sites = {.top = 10}, .schema = JsonSchema::v1}));
  const auto& process = report["processes"][0];
  EXPECT_EQ(process["touch"]["kernel_faults"], 390);
  EXPECT_DOUBLE_EQ(process["touch"]["kernel_share"], 0.39);
  EXPECT_EQ(process["touch"]["kernel_faults_by_line"], 200);
  const auto& by_file = process["causes"][0]["sites"][0]["touched_by"];
  ASSERT_EQ(by_file.size(), 3U);
  EXPECT_EQ(by_file[0]["growth"], 80 * kMiB);
  EXPECT_EQ(by_file[0]["stack"][1]["function"], "scan");
  EXPECT_EQ(by_file[0]["standard_error"], 100000);
  EXPECT_EQ(by_file[2]["growth"], 15 * kMiB);
  EXPECT_TRUE(by_file[2]["stack"].empty());
  const auto& by_call = process["causes"][1]["sites"][0]["touched_by"];
  ASSERT_EQ(by_call.size(), 1U);
  EXPECT_EQ(by_call[0]["by_kernel"], true);
}

TEST(TouchReport, LinesNameWhatTouchedMostOfThem) {
  const RecordingAccount recording = reading();
  const View view = build_view(recording, {0, 2});
  const std::vector<Verdict> verdicts = find_verdicts(view);
  const std::string text = render_text(view, verdicts, {});
  EXPECT_NE(text.find("file cache of train.bin (mapped at load.py:3 in load, read at scan.py:9 in scan)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("load.py:3 in load (train.bin), read at scan.py:9 in scan"), std::string::npos) << text;
  EXPECT_NE(text.find("load.py:3 in load, touched at scan.py:9 in scan"), std::string::npos) << text;
}

TEST(TouchReport, ByTouchRanksTheTouchingLines) {
  const RecordingAccount recording = reading();
  const View view = build_view(recording, {0, 2});
  TextStyle style;
  style.by_touch = true;
  const std::string text = render_text(view, {}, style);
  const std::size_t scan = text.find("scan.py:9 in scan"), unseen = text.find("(not recorded)"),
                    check = text.find("check.py:4 in check");
  ASSERT_NE(check, std::string::npos) << text;
  EXPECT_LT(scan, unseen);
  EXPECT_LT(unseen, check);
  EXPECT_NE(text.find("load.py:3 in load (train.bin)"), std::string::npos) << text;
  EXPECT_EQ(text.find("Lines with the most growth"), std::string::npos);
  EXPECT_NE(render_markdown(view, {}, style).find("check.py:4 in check"), std::string::npos);
}

}  // namespace
}  // namespace whyrss::touch_report_test
