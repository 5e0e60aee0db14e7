// Memory given up with MADV_FREE, as the reports show it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "literal_accounts.h"
#include "report/render/json.h"
#include "report/render/text.h"
#include "report/verdicts/lazy_free_rule.h"
#include "report/view/build_view.h"

namespace whyrss::lazy_free_report_test {
namespace {

using literal::kMiB;

// Of 100 MiB of a mapping 20 MiB are given up by one call at 1 s, and 40 MiB more by another at 2 s; 5 of the first 20
// were taken back.
RecordingAccount giving_up() {
  RecordingAccount recording;
  recording.info = literal::finished({"python3", "work.py"}, 3);
  StackTable& stacks = recording.stacks;
  const StackId mapper = literal::python_stack(stacks, "/home/ann/load.py", 3, "load");
  const StackId drop = literal::python_stack(stacks, "/home/ann/cache.py", 9, "drop");
  const StackId clear = literal::python_stack(stacks, "/home/ann/cache.py", 12, "clear");
  ProcessAccount process = literal::python_process(7, {"python3", "work.py"});
  process.accounts = {literal::walk(1, {{Cause::anonymous, 80, mapper}, {Cause::lazy_free, 20, mapper}}),
                      literal::walk(2, {{Cause::anonymous, 45, mapper}, {Cause::lazy_free, 55, mapper}})};
  process.accounts[0].slices.open()[1].advised = {{drop, 20 * kMiB}};
  process.accounts[1].slices.open()[0].advised = {{clear, 40 * kMiB}, {drop, 15 * kMiB}};
  recording.processes.push_back(std::move(process));
  return recording;
}

TEST(LazyFreeReport, NamesTheCallsByTheirGrowth) {
  const RecordingAccount recording = giving_up();
  const View view = build_view(recording, {1, 2});
  const std::vector<Verdict> verdicts = find_verdicts(view);
  const auto report = nlohmann::json::parse(render_json(view, verdicts, {.schema = JsonSchema::v1}));
  const auto& cause = report["processes"][0]["causes"][0];
  EXPECT_EQ(cause["cause"], "lazy_free");
  EXPECT_EQ(cause["growth"]["rss"], 35 * kMiB);
  const auto& site = cause["sites"][0];
  ASSERT_EQ(site["advised_by"].size(), 2U);
  EXPECT_EQ(site["advised_by"][0]["growth"], 40 * kMiB);
  EXPECT_EQ(site["advised_by"][0]["resident"], 40 * kMiB);
  EXPECT_EQ(site["advised_by"][0]["stack"][1]["function"], "clear");
  EXPECT_EQ(site["advised_by"][1]["growth"], -5 * kMiB);
  EXPECT_EQ(site["advised_by"][1]["resident"], 15 * kMiB);
  EXPECT_FALSE(report["processes"][0]["causes"][1]["sites"][0].contains("advised_by"));
  EXPECT_NE(render_text(view, verdicts, {}).find("load.py:3 in load, given up at cache.py:12 in clear"),
            std::string::npos);
}

TEST(LazyFreeReport, IsNoLeakAndNoCauseGrowth) {
  RecordingAccount recording = giving_up();
  const View view = build_view(recording, {0, 3});
  std::vector<Verdict> verdicts = find_verdicts(view);
  std::erase_if(verdicts, [](const Verdict& verdict) { return verdict.id == "cause-growth"; });
  ASSERT_EQ(verdicts.size(), 1U);  // nor is it said to be gone since the peak
  EXPECT_EQ(verdicts[0].id, "lazy-free-growth");
  EXPECT_EQ(verdicts[0].severity, Severity::ok);
  EXPECT_EQ(verdicts[0].headline,
            "55 MiB given up with MADV_FREE (most called at cache.py:12 in clear: 40 MiB, 15 MiB at cache.py:9 in "
            "drop): reclaimable, not a leak");
  EXPECT_EQ(verdicts[0].advice.find("jemalloc"), std::string::npos);
  EXPECT_EQ(verdicts[0].evidence["advised_by"][1]["growth_bytes"], 15 * kMiB);
  EXPECT_EQ(verdicts[0].evidence["lines"][0]["growth_bytes"], 55 * kMiB);
  recording.processes[0].allocator = "jemalloc";
  verdicts.clear();
  lazy_free_growth(build_view(recording, {0, 3}), verdicts);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_NE(verdicts[0].advice.find("muzzy_decay_ms:0"), std::string::npos);
}

// Writing to it again is no event.
TEST(LazyFreeReport, IsAtMostSoMuchSinceTheLastWalk) {
  RecordingAccount recording = giving_up();
  recording.processes[0].accounts[1].estimated_from_s = 1.9;
  const View view = build_view(recording, {0, 3});
  EXPECT_TRUE(view.processes[0].find(Cause::lazy_free)->estimate);
  EXPECT_FALSE(view.processes[0].find(Cause::anonymous)->estimate);
  std::vector<Verdict> verdicts;
  lazy_free_growth(view, verdicts);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_TRUE(verdicts[0].headline.starts_with("at most 55 MiB given up with MADV_FREE")) << verdicts[0].headline;
}

TEST(LazyFreeReport, CountsOnceWhatRelativesShare) {
  RecordingAccount recording = giving_up();
  for (Slice& slice : recording.processes[0].accounts[1].slices.open()) slice.exclusive_bytes = 10 * kMiB;
  recording.processes.push_back(recording.processes[0]);
  recording.processes[1].born_s = 1.5;
  recording.processes[1].ended_s = 2.5;
  EXPECT_EQ(lazy_free_at(recording, 0.5), 0);
  EXPECT_EQ(lazy_free_at(recording, 1.2), 20 * kMiB);
  EXPECT_EQ(lazy_free_at(recording, 2.2), (10 + 10 + 45) * kMiB);
  EXPECT_EQ(lazy_free_at(recording, 2.8), 55 * kMiB);
  // Between two walks: what both saw.
  recording.processes.resize(1);
  recording.processes[0].accounts.push_back(literal::walk(4, {{Cause::anonymous, 95}, {Cause::lazy_free, 5}}));
  EXPECT_EQ(lazy_free_at(recording, 2.1), 55 * kMiB);
  EXPECT_EQ(lazy_free_at(recording, 3), 5 * kMiB);
}

}  // namespace
}  // namespace whyrss::lazy_free_report_test
