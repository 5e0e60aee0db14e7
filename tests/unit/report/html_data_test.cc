// What the HTML page is given: every figure of a recording, at every snapshot, whatever is summed up to keep it small.
#include "report/html/html_data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "literal_accounts.h"
#include "report/html/html.h"
#include "report/html/html_columns.h"
#include "report/html/html_series.h"
#include "report/html/html_thinning.h"
#include "report/view/build_view.h"

namespace whyrss::html_data_test {
namespace {

using literal::kMiB;

// The data, read as the page reads it.
class Data {
 public:
  explicit Data(const std::string& text) {
    const std::size_t newline = text.find('\n');
    const std::size_t size = std::stoul(text.substr(0, newline));
    header_ = nlohmann::json::parse(text.substr(newline + 1, size));
    std::size_t at = newline + 1 + size;
    for (const auto& row : header_["columns"]) {
      columns_[row[0]] = {row[1], row[2], text.substr(at, row[3])};
      at += row[3].get<std::size_t>();
    }
    EXPECT_EQ(at, text.size());
  }

  [[nodiscard]] const nlohmann::json& header() const { return header_; }

  [[nodiscard]] std::vector<std::int64_t> whole(const std::string& name) const {
    const Column& column = columns_.at(name);
    EXPECT_EQ(column.type, "whole");
    std::vector<std::int64_t> values;
    for (std::size_t at = 0; at < column.bytes.size();) {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(column.bytes.at(at++));
        value |= std::uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) break;
      }
      values.push_back(static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1));
    }
    EXPECT_EQ(values.size(), column.count) << name;
    return values;
  }

  [[nodiscard]] std::vector<std::int64_t> sums(const std::string& name, const std::vector<std::int64_t>& runs) const {
    std::vector<std::int64_t> values = whole(name);
    std::size_t at = 0;
    for (const std::int64_t run : runs)
      for (std::int64_t sum = 0, i = 0; i < run; ++i, ++at) sum = values.at(at) += sum;
    EXPECT_EQ(at, values.size()) << name;
    return values;
  }

  [[nodiscard]] std::vector<double> float64(const std::string& name) const {
    const Column& column = columns_.at(name);
    EXPECT_EQ(column.type, "float64");
    std::vector<double> values(column.count);
    EXPECT_EQ(column.bytes.size(), column.count * sizeof(double));
    std::memcpy(values.data(), column.bytes.data(), column.bytes.size());
    return values;
  }

 private:
  struct Column {
    std::string type;
    std::size_t count = 0;
    std::string bytes;
  };
  nlohmann::json header_;
  std::map<std::string, Column> columns_;
};

std::vector<std::int64_t> all(const Data& data, const std::string& name) {
  return data.sums(name, {static_cast<std::int64_t>(data.whole(name).size())});
}

Data data_of(const RecordingAccount& recording, const HtmlBounds& bounds = {}) {
  const View view = build_view(recording, whole_life(recording));
  return Data(html_data(view, find_verdicts(view), bounds));
}

using CauseSums = std::map<std::int64_t, std::int64_t>;

// process -> of each of its snapshots: cause -> bytes, as the rows of the sites tell it.
std::map<std::int64_t, std::vector<CauseSums>> sums_over_time(const Data& data) {
  const auto snapshots = data.whole("snapshot_count"), changes = data.whole("site_changes");
  const auto process = all(data, "site_process"), cause = data.whole("site_cause");
  const auto at = data.sums("site_at", changes), bytes = data.whole("site_bytes");
  std::map<std::int64_t, std::vector<CauseSums>> sums;
  for (std::size_t i = 0; i < snapshots.size(); ++i)
    sums[static_cast<std::int64_t>(i)].resize(static_cast<std::size_t>(snapshots[i]));
  std::size_t next = 0;
  for (std::size_t row = 0; row < changes.size(); ++row) {
    std::vector<CauseSums>& of_process = sums[process[row]];
    for (std::int64_t i = 0; i < changes[row]; ++i, ++next)
      for (auto k = static_cast<std::size_t>(at[next]); k < of_process.size(); ++k)
        of_process[k][cause[row]] += bytes[next];
  }
  return sums;
}

CauseSums sums_of(const Account& account) {
  CauseSums sums;
  for (const Slice& slice : account.slices) sums[static_cast<std::int64_t>(slice.site.cause)] += slice.bytes;
  return sums;
}

void expect_equal(const Data& data, const RecordingAccount& recording) {
  auto sums = sums_over_time(data);
  const auto counts = data.whole("snapshot_count");
  const auto rss = data.sums("snapshot_rss", counts);
  const auto times = data.float64("snapshot_time");
  std::size_t next = 0;
  for (std::size_t i = 0; i < recording.processes.size(); ++i) {
    const auto& accounts = recording.processes[i].accounts;
    ASSERT_EQ(static_cast<std::size_t>(counts.at(i)), accounts.size());
    for (std::size_t k = 0; k < accounts.size(); ++k, ++next) {
      CauseSums shown = sums[static_cast<std::int64_t>(i)][k];
      std::erase_if(shown, [](const auto& entry) { return entry.second == 0; });
      EXPECT_EQ(shown, sums_of(accounts[k])) << "process " << i << " snapshot " << k;
      EXPECT_EQ(rss.at(next), accounts[k].rss_bytes);
      EXPECT_EQ(times.at(next), accounts[k].time_s);
    }
  }
}

// Many sites that come, grow, shrink and go.
RecordingAccount many_sites(int sites, int snapshots) {
  RecordingAccount recording;
  recording.info = literal::finished({"/usr/bin/job"}, snapshots);
  ProcessAccount process = literal::python_process(7, recording.info.command);
  std::mt19937 random(1);
  for (int k = 0; k < snapshots; ++k) {
    Account account;
    account.time_s = k + 0.25;
    account.has_liveness = true;
    for (int i = 0; i < sites; ++i) {
      const auto bytes = static_cast<std::int64_t>(random() % 3 == 0 ? 0 : (random() % 1000) * 4096);
      if (bytes == 0) continue;
      const StackId stack = literal::native_stack(recording.stacks, {{"make_" + std::to_string(i), "/usr/bin/job"}});
      const Cause cause = i % 2 == 0 ? Cause::heap_live : Cause::anonymous;
      account.slices.open().push_back(
          {.site = {.cause = cause, .stack = stack}, .bytes = bytes, .exclusive_bytes = bytes});
      account.rss_bytes += bytes;
    }
    process.accounts.push_back(std::move(account));
  }
  recording.processes.push_back(std::move(process));
  return recording;
}

TEST(HtmlData, HasEveryCauseAtEverySnapshot) {
  const RecordingAccount recording = literal::quickstart();
  const Data data = data_of(recording);
  expect_equal(data, recording);
  EXPECT_EQ(data.header()["processes"].size(), 3U);
  EXPECT_EQ(data.header()["report"]["phases"][0]["name"], "load");
  EXPECT_EQ(data.header()["bounds"]["sites_left_out"], 0);
}

TEST(HtmlData, SumsUpWhatIsLeftOut) {
  const RecordingAccount recording = many_sites(200, 30);
  HtmlBounds bounds;
  bounds.sites = 5;
  const Data data = data_of(recording, bounds);
  EXPECT_EQ(data.header()["bounds"]["sites_left_out"], 195);
  EXPECT_EQ(data.whole("site_changes").size(), 7U);  // five, and the others of two causes
  expect_equal(data, recording);
}

TEST(HtmlData, KeepsWithinItsBounds) {
  const RecordingAccount recording = many_sites(200, 30);
  for (const std::size_t changes : {0U, 100U, 1000U}) {
    HtmlBounds bounds;
    bounds.changes = changes;
    const Data data = data_of(recording, bounds);
    EXPECT_LE(data.whole("site_bytes").size(), changes + 2 * 30);
    expect_equal(data, recording);
  }
  HtmlBounds few_stacks;
  few_stacks.stack_nodes = 20;
  EXPECT_LE(data_of(recording, few_stacks).whole("node_parent").size(), 21U);
}

TEST(HtmlData, LeavesOutSnapshotsButNotThePeaks) {
  const RecordingAccount recording = many_sites(20, 1000);
  HtmlBounds bounds;
  bounds.snapshots = 90;
  const Data data = data_of(recording, bounds);
  const auto counts = data.whole("snapshot_count");
  EXPECT_LE(counts.at(0), 90 + 20);
  EXPECT_EQ(data.header()["bounds"]["all_snapshots"], 1000);
  const auto rss = data.sums("snapshot_rss", counts);
  const auto times = data.float64("snapshot_time");
  const auto& accounts = recording.processes[0].accounts;
  const auto largest = std::ranges::max_element(accounts, {}, &Account::rss_bytes);
  EXPECT_EQ(*std::ranges::max_element(rss), largest->rss_bytes);
  EXPECT_EQ(times.front(), accounts.front().time_s);
  EXPECT_EQ(times.back(), accounts.back().time_s);
  // What is left is as it was: of each cause the largest sum is among them.
  std::map<std::int64_t, std::int64_t> shown, expected;
  const auto over_time = sums_over_time(data);
  for (const CauseSums& sums : over_time.at(0))
    for (const auto& [cause, bytes] : sums) shown[cause] = std::max(shown[cause], bytes);
  for (const Account& account : accounts) {
    const CauseSums sums = sums_of(account);
    for (const auto& [cause, bytes] : sums) expected[cause] = std::max(expected[cause], bytes);
  }
  EXPECT_EQ(shown, expected);
}

TEST(HtmlData, TellsWhoTouchedAndWhoGaveUp) {
  RecordingAccount recording = literal::quickstart();
  StackTable& stacks = recording.stacks;
  const StackId reader = literal::python_stack(stacks, "/home/u/reader.py", 3, "read");
  Slice& slice = recording.processes[0].accounts[1].slices.open()[0];
  slice.touched = {{.stack = reader, .bytes = 100 * kMiB, .variance = 4.0},
                   {.stack = reader, .bytes = 5 * kMiB, .by_kernel = true}};
  slice.advised = {{.stack = reader, .bytes = 7 * kMiB}};
  const Data data = data_of(recording);
  EXPECT_EQ(data.whole("share_kind"), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(data.whole("share_bytes"),
            (std::vector<std::int64_t>{100 * kMiB, -100 * kMiB, 5 * kMiB, -5 * kMiB, 7 * kMiB, -7 * kMiB}));
  HtmlBounds bounds;
  bounds.shares = 1;
  const Data fewer = data_of(recording, bounds);
  EXPECT_EQ(fewer.whole("share_kind").size(), 1U);
  EXPECT_EQ(fewer.header()["bounds"]["shares_left_out"], 2);
}

std::shared_ptr<const PageMap> picture_of(std::size_t runs) {
  PageMap map;
  PageMapMapping& mapping = map.mappings.emplace_back();
  mapping.start = 0x10000;
  mapping.end = 0x10000 + runs * 3 * kPictureCellBytes;
  mapping.path = "[heap]";
  mapping.writable = true;
  for (std::size_t i = 0; i < runs; ++i) {
    const std::uint64_t start = mapping.start + i * 3 * kPictureCellBytes;
    mapping.runs.push_back({start, start + 2 * kPictureCellBytes, 2, Cause::heap_live, kEmptyStack, 5});
  }
  mapping.ages = {{mapping.start, mapping.end, 1.5}};
  return std::make_shared<const PageMap>(std::move(map));
}

TEST(HtmlData, PicturesOfTheLargestAndLastWalksOfAllProcessesComeFirst) {
  RecordingAccount recording = literal::quickstart();
  for (ProcessAccount& process : recording.processes)
    for (Account& account : process.accounts) account.picture = picture_of(10);
  const Data whole = data_of(recording);
  const std::size_t all_pictures = whole.whole("picture_process").size();
  EXPECT_EQ(whole.header()["bounds"]["pictures_left_out"], 0);
  EXPECT_EQ(whole.whole("mapped_runs"), std::vector<std::int64_t>(all_pictures, 10));
  EXPECT_EQ(whole.whole("mapped_flags"), std::vector<std::int64_t>(all_pictures, 1 | 2));
  EXPECT_EQ(whole.whole("run_gap").at(0), 0);
  EXPECT_EQ(whole.whole("run_gap").at(1), 1);
  EXPECT_EQ(whole.whole("run_live").at(1), 5);

  HtmlBounds bounds;
  bounds.picture_entries = recording.processes.size() * 11;
  const Data data = data_of(recording, bounds);
  EXPECT_EQ(data.header()["bounds"]["pictures_left_out"], all_pictures - recording.processes.size());
  const std::vector<double> shown = data.float64("picture_time");
  ASSERT_EQ(shown.size(), recording.processes.size());
  for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_EQ(shown[i], recording.processes[i].accounts.back().time_s);
}

TEST(HtmlData, KeepsTheBytesOfSmallCopies) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[1].copies.clear();
  std::int64_t sum = 0;
  for (int i = 0; i < 50; ++i) {
    recording.processes[1].copies.push_back({.time_s = 7.2 + i % 3, .copied_bytes = (i + 1) * 4096});
    sum += (i + 1) * 4096;
  }
  HtmlBounds bounds;
  bounds.copies = 10;
  const Data data = data_of(recording, bounds);
  const auto process = all(data, "copy_process"), bytes = data.whole("copy_bytes");
  std::int64_t shown = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) shown += process[i] == 1 ? bytes[i] : 0;
  EXPECT_EQ(shown, sum);
  EXPECT_LE(bytes.size(), 10U + 6);
}

TEST(HtmlData, PssIsThatOfTheReport) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording));
  const Data data = data_of(recording);
  const auto counts = data.whole("pss_count"), state = data.sums("pss_state", data.whole("pss_count"));
  std::size_t end = 0;
  for (std::size_t i = 0; i < view.processes.size(); ++i) {
    end += static_cast<std::size_t>(counts.at(i));
    ASSERT_TRUE(view.processes[i].pss.last);
    EXPECT_EQ(state.at(end - 1) / 2, *view.processes[i].pss.last);
  }
}

TEST(HtmlData, HasNothingOfAProcessThatWasNeverLookedAt) {
  RecordingAccount recording = literal::quiet();
  recording.processes[0].accounts.clear();
  const Data data = data_of(recording);
  EXPECT_EQ(data.whole("snapshot_count"), std::vector<std::int64_t>{0});
  EXPECT_TRUE(data.whole("site_process").empty());
  recording.processes.clear();
  EXPECT_TRUE(data_of(recording).whole("snapshot_count").empty());
}

// What it shades.
TEST(HtmlData, HasSinceWhenNothingIsKnownOfAProcess) {
  RecordingAccount recording = literal::quiet();
  recording.processes[0].ended_s.reset();
  recording.info.duration_s = 2;
  EXPECT_TRUE(data_of(recording).header()["processes"][0]["broken_off_s"].is_null());
  recording.info.complete = false;
  EXPECT_EQ(data_of(recording).header()["processes"][0]["broken_off_s"], 0.4);
}

TEST(HtmlData, FoldsProcessesAlikeAsTheTextDoes) {
  RecordingAccount recording = literal::quiet();
  ProcessAccount worker = recording.processes[0];
  worker.accounts = {literal::walk(0.1, {}), literal::walk(0.3, {{Cause::heap_live, 100}})};
  recording.processes.clear();
  for (const int pid : {50, 51, 52}) {
    worker.pid = pid;
    recording.processes.push_back(worker);
  }
  worker.pid = 53;
  worker.accounts = {literal::walk(0.1, {{Cause::heap_live, 1}})};
  recording.processes.push_back(worker);
  const nlohmann::json header = data_of(recording).header();
  ASSERT_EQ(header["alike"].size(), 1U) << header["alike"];
  EXPECT_EQ(header["alike"][0]["pid"], 50);
  EXPECT_EQ(header["alike"][0]["pids"], nlohmann::json({51, 52}));
  EXPECT_TRUE(header["alike"][0]["text"].get<std::string>().starts_with("The same holds for 2 more processes like it"));
  EXPECT_TRUE(header["rest"].get<std::string>().starts_with("1 more process (")) << header["rest"];
}

TEST(HtmlData, ShortensLongCommandsAndReplacesBrokenText) {
  RecordingAccount recording = literal::quiet();
  recording.processes[0].command = {"/bin/job", std::string(5000, 'x'), "left out", "\xff\xfe"};
  recording.processes[0].notes = {"\xff broken"};
  const Data data = data_of(recording);
  const auto& process = data.header()["processes"][0];
  EXPECT_EQ(process["command"].size(), 2U);
  EXPECT_EQ(process["command"][1].get<std::string>().size(), 1000U - 8);
  EXPECT_EQ(process["notes"][0], "\uFFFD broken");
}

TEST(HtmlColumns, ReadBackAsWritten) {
  std::string text;
  HtmlColumns columns;
  HtmlColumn& whole = columns.whole("whole");
  const std::vector<std::int64_t> values{0, -1, 1, 63, 64, -64, -65, 1LL << 40, -(1LL << 40), INT64_MAX, INT64_MIN};
  for (const std::int64_t value : values) whole.add(value);
  columns.float64("real").add_float(0.1);
  const std::string header = nlohmann::json{{"columns", columns.rows()}}.dump();
  text = std::to_string(header.size()) + "\n" + header;
  columns.append_to(text);
  const Data data(text);
  EXPECT_EQ(data.whole("whole"), values);
  EXPECT_EQ(data.float64("real"), std::vector<double>{0.1});
}

TEST(HtmlSeries, TellsChangesOnly) {
  HtmlSeries series;
  series.set(0, 5);
  series.close(0);
  series.set(1, 5);
  series.close(1);
  series.close(2);
  series.set(4, 3, 2.0);
  ASSERT_EQ(series.changes().size(), 3U);
  EXPECT_EQ(series.changes()[1].at, 2U);
  EXPECT_EQ(series.changes()[1].bytes, -5);
  EXPECT_EQ(series.changes()[2].bytes, 3);
  EXPECT_EQ(series.most(), 5);
  EXPECT_TRUE(series.has_variance());
}

TEST(HtmlThinning, SharesOutFairly) {
  EXPECT_EQ(share_of_each({10, 10, 10}, 100), 100U);
  EXPECT_EQ(share_of_each({1, 1, 1000}, 102), 100U);
  EXPECT_EQ(share_of_each({50, 50, 50, 50}, 100), 25U);
  EXPECT_EQ(share_of_each({}, 5), 5U);
}

TEST(HtmlThinning, KeepsEndsAndExtremes) {
  const auto wave = [](std::size_t i) { return i == 777 ? 1000 : i == 333 ? -1000 : static_cast<std::int64_t>(i % 7); };
  const auto kept = thinned(1000, 30, wave, {5});
  EXPECT_LE(kept.size(), 32U);
  for (const std::uint32_t at : {0U, 5U, 333U, 777U, 999U}) EXPECT_TRUE(std::ranges::binary_search(kept, at)) << at;
  EXPECT_EQ(thinned(10, 10, wave).size(), 10U);
  EXPECT_TRUE(thinned(0, 10, wave).empty());
}

TEST(Html, IsOnePageWithItsData) {
  RecordingAccount recording = literal::quickstart();
  recording.info.command = {"</script><script>alert(1)</script>"};
  const View view = build_view(recording, whole_life(recording));
  std::string page;
  write_html(view, find_verdicts(view), [&](std::string_view piece) { page += piece; });
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_EQ(page.find("<!--DATA-->"), std::string::npos);
  EXPECT_NE(page.find("<script type=\"text/plain\" id=\"data\">"), std::string::npos);
  EXPECT_EQ(page.find("alert(1)"), std::string::npos);
  EXPECT_NE(page.find("The MIT License"), std::string::npos);
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

}  // namespace
}  // namespace whyrss::html_data_test
