// The report for programs: keys and types of the contract, figures that sum, and hostile text.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "literal_accounts.h"
#include "model/thread_starts.h"
#include "report/render/json.h"
#include "report/view/build_view.h"

namespace whyrss::json_report_test {
namespace {

using Json = nlohmann::json;
using literal::kMiB;

Json report_of(const RecordingAccount& recording, std::size_t top = 0) {
  const View view = build_view(recording, whole_life(recording));
  return Json::parse(render_json(view, find_verdicts(view), {.sites = {.top = top}, .schema = JsonSchema::v1}));
}

std::set<std::string> keys(const Json& object) {
  std::set<std::string> names;
  for (const auto& item : object.items()) names.insert(item.key());
  return names;
}

void expect_keys(const Json& object, const std::set<std::string>& wanted) {
  const std::set<std::string> found = keys(object);
  for (const std::string& name : wanted) EXPECT_TRUE(found.contains(name)) << name;
}

TEST(JsonReport, EveryKeyOfTheContract) {
  const Json report = report_of(literal::quickstart());
  EXPECT_EQ(keys(report), (std::set<std::string>{"schema", "recording", "interval", "family", "processes", "phases",
                                                 "marks", "verdicts"}));
  EXPECT_EQ(report["schema"], "whyrss.report/1");
  expect_keys(report["recording"],
              {"path", "host", "command", "started", "duration_s", "mode", "complete", "exit", "lost", "capabilities"});
  expect_keys(report["recording"]["exit"], {"code", "signal", "oom_killed"});
  expect_keys(report["family"], {"pss", "rss_sum", "cgroup"});
  const Json& process = report["processes"][1];
  expect_keys(process, {"pid", "parent", "born", "born_s", "ended_s", "traced", "command", "allocator", "python", "rss",
                        "pss", "uss", "outside_rss", "causes", "cow", "allocator_stats"});
  expect_keys(process, {"teardown_s", "unseen_s"});
  expect_keys(process["rss"], {"first", "last", "peak", "high_water", "high_water_at_least"});
  expect_keys(process["outside_rss"], {"swap", "hugetlb", "device", "shmem_unmapped", "page_tables"});
  const Json& cause = process["causes"][0];
  expect_keys(cause, {"cause", "rss", "growth", "estimate", "sites"});
  expect_keys(cause["rss"], {"first", "last", "peak", "at_peak"});
  expect_keys(cause["growth"], {"rss", "pss", "uss"});
  expect_keys(cause["sites"][0], {"growth", "resident", "mapping", "stack", "standard_error", "touched_by"});
  expect_keys(process["pymalloc"], {"live", "slack", "retained"});
  expect_keys(cause["sites"][0]["stack"][0], {"kind", "function", "file", "line"});
  expect_keys(report["verdicts"][0], {"id", "severity", "pid", "bytes", "headline", "why", "advice", "evidence"});
}

// The same report with the frames of each stack where it is referred to.
Json expanded(Json report) {
  const auto put = [stacks = report["stacks"]](Json& number) { number = stacks.at(number.get<std::size_t>()); };
  for (Json& process : report["processes"]) {
    for (Json& cause : process["causes"])
      for (Json& site : cause["sites"]) {
        put(site["stack"]);
        if (site.contains("during")) put(site["during"]);
        for (Json& touch : site["touched_by"]) put(touch["stack"]);
        if (site.contains("advised_by"))
          for (Json& advice : site["advised_by"]) put(advice["stack"]);
      }
    for (Json& site : process["cow"]["sites"])
      for (const char* name : {"allocated_at", "written_at"}) put(site[name]);
  }
  report["schema"] = "whyrss.report/1";
  report.erase("stacks");
  return report;
}

TEST(JsonReport, EachStackStandsOnce) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording));
  for (const std::size_t top : {0U, 1U}) {
    const Json report = Json::parse(render_json(view, find_verdicts(view), {.sites = {.top = top}}));
    EXPECT_EQ(report["schema"], "whyrss.report/2");
    EXPECT_EQ(report["stacks"].at(0), Json::array());
    EXPECT_GT(report["stacks"].size(), 1U);
    EXPECT_EQ(std::set<Json>(report["stacks"].begin(), report["stacks"].end()).size(), report["stacks"].size());
    EXPECT_EQ(expanded(report), report_of(recording, top));
  }
}

// Of a line called from three places, and of a large site.
TEST(JsonReport, SmallSitesOfALineAreOne) {
  StackTable stacks;
  const auto python = [&](const char* function, int line) {
    return stacks.intern(
        Frame{.kind = FrameKind::python, .function = function, .file = "/home/u/job.py", .line = line});
  };
  const auto from = [&](int line) { return stacks.intern({python("keep", 3), python("main", line)}); };
  const StackId a = from(7), b = from(8), c = from(9), large = from(10);
  RecordingAccount recording;
  recording.info = literal::finished({"python3", "job.py"}, 2);
  recording.stacks = stacks;
  recording.processes.push_back(literal::python_process(10, {"python3", "job.py"}));
  recording.processes[0].totals = {literal::totals(1, 60, 60, 60)};
  recording.processes[0].accounts = {literal::walk(
      1,
      {{Cause::heap_live, 1, a}, {Cause::heap_live, 1, b}, {Cause::heap_live, 3, c}, {Cause::heap_live, 55, large}})};
  for (Slice& slice : recording.processes[0].accounts[0].slices.open())
    if (slice.site.stack != large) slice.variance = 1.0 * kMiB * kMiB;
  const View view = build_view(recording, whole_life(recording));
  const Json whole = expanded(Json::parse(render_json(view, {}, {.sites = {.keeps_small_sites = true}})));
  EXPECT_EQ(whole["processes"], Json::parse(render_json(view, {}, {.schema = JsonSchema::v1}))["processes"]);

  const Json report = expanded(Json::parse(render_json(view, {}, {})));
  const Json& sites = report["processes"][0]["causes"][0]["sites"];
  ASSERT_EQ(sites.size(), 3U);
  EXPECT_EQ(sites[0]["growth"], 55 * kMiB);
  EXPECT_EQ(sites[0]["stack"].size(), 2U);
  EXPECT_FALSE(sites[0].contains("small_sites"));
  EXPECT_EQ(sites[1]["growth"], 3 * kMiB);
  EXPECT_EQ(sites[1]["stack"][1]["line"], 9);
  EXPECT_EQ(sites[2]["growth"], 2 * kMiB);
  EXPECT_EQ(sites[2]["small_sites"], 2);
  EXPECT_EQ(sites[2]["standard_error"], std::llround(std::sqrt(2.0) * kMiB));
  ASSERT_EQ(sites[2]["stack"].size(), 1U);
  EXPECT_EQ(sites[2]["stack"][0]["line"], 3);
}

TEST(JsonReport, WhereTheMainThreadWaitedStandsApart) {
  StackTable stacks;
  const auto python = [&](const char* file, const char* function) {
    return stacks.intern(Frame{.kind = FrameKind::python, .function = function, .file = file, .line = 3});
  };
  const FrameId grow = stacks.intern(Frame{.function = "grow", .file = {}});
  const StackId waited = stacks.intern({grow, waiter_frame(stacks), python("/v/site-packages/frames/frame.py", "query"),
                                        python("/home/u/job.py", "load"), python("/home/u/job.py", "main")});
  RecordingAccount recording;
  recording.info = literal::finished({"python3", "job.py"}, 2);
  recording.stacks = stacks;
  recording.processes.push_back(literal::python_process(10, {"python3", "job.py"}));
  recording.processes[0].totals = {literal::totals(1, 60, 60, 60)};
  recording.processes[0].accounts = {literal::walk(1, {{Cause::anonymous, 60, waited}})};
  const View view = build_view(recording, whole_life(recording));
  for (const JsonSchema schema : {JsonSchema::v1, JsonSchema::v2}) {
    Json report = Json::parse(render_json(view, find_verdicts(view), {.schema = schema}));
    if (schema == JsonSchema::v2) report = expanded(report);
    const Json& site = report["processes"][0]["causes"][0]["sites"][0];
    ASSERT_EQ(site["stack"].size(), 1U);
    EXPECT_EQ(site["stack"][0]["function"], "grow");
    ASSERT_EQ(site["during"].size(), 2U);
    EXPECT_EQ(site["during"][0]["function"], "load");
    EXPECT_EQ(site["during"][1]["function"], "main");
  }
}

TEST(JsonReport, EndsThatNobodyWalked) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].unseen_s = 0;
  EXPECT_EQ(report_of(recording)["recording"]["ends_seen"], true);
  recording.processes[0].unseen_s = 1.5;
  const Json report = report_of(recording);
  EXPECT_EQ(report["recording"]["ends_seen"], false);
  EXPECT_EQ(report["recording"]["complete"], recording.info.complete);
  EXPECT_EQ(report["processes"][0]["unseen_s"], 1.5);
}

TEST(JsonReport, RealTypes) {
  const Json report = report_of(literal::quickstart());
  EXPECT_EQ(report["recording"]["capabilities"]["write_tracking"], false);
  EXPECT_EQ(report["recording"]["capabilities"]["page_scan"], true);
  EXPECT_EQ(report["recording"]["capabilities"]["touch"], "none");
  EXPECT_EQ(report["recording"]["capabilities"]["python"], "3.11");
  EXPECT_TRUE(report["recording"]["exit"]["signal"].is_null());
  EXPECT_EQ(report["processes"][0]["parent"], nullptr);
  EXPECT_EQ(report["processes"][1]["parent"], 4711);
  EXPECT_EQ(report["processes"][1]["born"], "fork");
  EXPECT_EQ(report["processes"][0]["rss"]["last"], 651 * kMiB);
  EXPECT_EQ(report["processes"][0]["outside_rss"]["page_tables"], kMiB);
  EXPECT_TRUE(report["processes"][0]["outside_rss"]["device"].is_null());
}

TEST(JsonReport, CapabilitiesAsTheCollectorWritesThem) {
  RecordingAccount recording = literal::quiet();
  recording.info.capabilities = {{"write_tracking", "yes"}, {"pagemap", "no"}, {"cgroup", "not mounted"}};
  Json capabilities = report_of(recording)["recording"]["capabilities"];
  EXPECT_EQ(capabilities["write_tracking"], true);
  EXPECT_EQ(capabilities["pagemap"], false);
  EXPECT_EQ(capabilities["cgroup"], "not mounted");
  recording.info.capabilities["write_tracking"] = "kernel too old";
  capabilities = report_of(recording)["recording"]["capabilities"];
  EXPECT_EQ(capabilities["write_tracking"], false);
  EXPECT_EQ(capabilities["write_tracking_why"], "kernel too old");
}

TEST(JsonReport, UnknownIsNullNotZero) {
  RecordingAccount recording = literal::quickstart();
  recording.processes.push_back(literal::python_process(99, {"/bin/true"}));
  const Json process = report_of(recording)["processes"][3];
  EXPECT_EQ(process["causes"], Json::array());
  EXPECT_TRUE(process["rss"]["peak"].is_null());
  EXPECT_TRUE(process["rss"]["high_water"].is_null());
  EXPECT_TRUE(process["pss"]["last"].is_null());
}

TEST(JsonReport, FramesOfBothKinds) {
  const Json sites = report_of(literal::quickstart())["processes"][0]["causes"][0]["sites"];
  EXPECT_EQ(sites[0]["mapping"], "/tmp/big.txt");
  EXPECT_EQ(sites[0]["stack"][0]["kind"], "native");
  EXPECT_EQ(sites[0]["stack"][0]["function"], "");
  EXPECT_EQ(sites[0]["stack"][0]["line"], 0);
  EXPECT_EQ(sites[0]["stack"][1],
            (Json{{"kind", "python"}, {"function", "load"}, {"file", "/home/u/quickstart.py"}, {"line", 18}}));
}

TEST(JsonReport, SitesBeyondTopAreSummedNotDropped) {
  for (const std::size_t top : {std::size_t{1}, std::size_t{2}}) {
    const Json report = report_of(literal::quickstart(), top);
    for (const Json& cause : report["processes"][0]["causes"]) {
      std::int64_t growth = 0;
      for (const Json& site : cause["sites"]) growth += site["growth"].get<std::int64_t>();
      EXPECT_EQ(growth, cause["growth"]["rss"]);
      EXPECT_LE(cause["sites"].size(), top + 1);
    }
  }
  const Json rest = report_of(literal::quickstart(), 1)["processes"][0]["causes"][0]["sites"][1];
  EXPECT_EQ(rest["stack"], Json::array());
  EXPECT_TRUE(rest["mapping"].is_null());
  EXPECT_EQ(rest["growth"], 5 * kMiB);
}

TEST(JsonReport, EstimatesBearTheirStandardError) {
  RecordingAccount recording = literal::quickstart();
  for (Slice& slice : recording.processes[0].accounts.back().slices.open())
    if (slice.site.cause == Cause::heap_live) slice.variance = 100.0 * kMiB * kMiB;
  const auto heap_sites = [&](std::size_t top) {
    Json report = report_of(recording, top);
    for (const Json& cause : report["processes"][0]["causes"])
      if (cause["cause"] == "heap_live") return cause["sites"];
    return Json();
  };
  EXPECT_EQ(heap_sites(0)[0]["standard_error"], 10 * kMiB);
  EXPECT_EQ(heap_sites(1)[1]["standard_error"], 10 * kMiB);  // of the others together
  EXPECT_EQ(report_of(recording)["processes"][0]["causes"][0]["sites"][0]["standard_error"], 0);
}

TEST(JsonReport, CopiesAndWhoMadeThem) {
  const Json cow = report_of(literal::quickstart())["processes"][2]["cow"];
  EXPECT_EQ(cow["copied"], 124 * kMiB);
  EXPECT_EQ(cow["sites"][0]["copied"], 124 * kMiB);
  EXPECT_EQ(cow["sites"][0]["allocated_at"][1]["line"], 24);
  EXPECT_EQ(cow["sites"][0]["written_at"], Json::array());
}

TEST(JsonReport, BytesThatAreNoUtf8) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].command = {"py\xff", "\"\n"};
  const Json report = report_of(recording);
  EXPECT_EQ(report["processes"][0]["command"][0], "py\xef\xbf\xbd");
  EXPECT_EQ(report["processes"][0]["command"][1], "\"\n");
}

TEST(JsonReport, KilledAndIncomplete) {
  RecordingAccount recording = literal::quiet();
  recording.info.complete = false;
  recording.info.incomplete_why = "still running";
  recording.info.exit_code.reset();
  recording.info.exit_signal = "SIGKILL";
  recording.info.oom_killed = true;
  const Json recorded = report_of(recording)["recording"];
  EXPECT_EQ(recorded["complete"], false);
  EXPECT_EQ(recorded["incomplete_why"], "still running");
  EXPECT_EQ(recorded["exit"], (Json{{"code", nullptr}, {"signal", "SIGKILL"}, {"oom_killed", true}}));
}

TEST(JsonReport, EmptyRecording) {
  const Json report = report_of(RecordingAccount{});
  EXPECT_EQ(report["processes"], Json::array());
  EXPECT_EQ(report["verdicts"].size(), 1U);
}

}  // namespace
}  // namespace whyrss::json_report_test
