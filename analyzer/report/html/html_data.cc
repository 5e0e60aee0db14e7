#include "report/html/html_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "model/cause.h"
#include "report/html/html_columns.h"
#include "report/html/html_page.h"
#include "report/html/html_pictures.h"
#include "report/html/html_series.h"
#include "report/html/html_sites.h"
#include "report/html/html_stacks.h"
#include "report/html/html_thinning.h"
#include "report/render/json.h"
#include "report/render/process_text.h"
#include "report/view/build_view.h"
#include "report/view/memory_figures.h"
#include "report/wording/optional_json.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;
using Shown = std::vector<std::vector<std::uint32_t>>;  // of each process, which of its accounts

constexpr int kFormat = 1;
constexpr std::size_t kCommandBytes = 1000;  // of one process: some have thousands of files as arguments

template <typename Series>
std::vector<std::size_t> counts_of(const RecordingAccount& recording, Series series) {
  std::vector<std::size_t> counts;
  for (const ProcessAccount& process : recording.processes) counts.push_back(series(process).size());
  return counts;
}

// The report without its part about each process, which the page works out itself.
Json report_json(View view, const std::vector<Verdict>& verdicts) {
  view.processes.clear();
  std::string text;
  write_json(view, verdicts, {}, [&](std::string_view piece) { text += piece; });
  return Json::parse(text);
}

Json command_json(const std::vector<std::string>& command) {
  Json words = Json::array();
  std::size_t left = kCommandBytes;
  for (const std::string& word : command) {
    words.push_back(word.substr(0, left));
    left -= std::min(left, word.size());
    if (left == 0) break;
  }
  return words;
}

Json process_json(const RecordingAccount& recording, const ProcessView& view) {
  const ProcessAccount& process = *view.account;
  Json asked = Json::array();
  for (const AllocatorStats& stats : process.allocator_stats)
    if (stats.moment == "snapshot") asked.push_back(stats.time_s);
  return {{"pid", process.pid},
          {"parent", optional_json(process.parent)},
          {"born", process.born_by_fork ? "fork" : "exec"},
          {"born_s", process.born_s},
          {"ended_s", optional_json(process.ended_s)},
          {"there_until_s", optional_json(there_until(process))},
          {"broken_off_s", optional_json(broken_off_s(recording, process))},
          {"teardown_s", optional_json(process.teardown_s)},
          {"unseen_s", optional_json(process.unseen_s)},
          {"end_signal", process.end_signal},
          {"command", command_json(process.command)},
          {"exe", process.exe},
          {"allocator", process.allocator.empty() ? "other" : process.allocator},
          {"python", optional_json(process.python)},
          {"traced", process.traced},
          {"high_water", process.high_water_bytes > 0 ? Json(process.high_water_bytes) : Json(nullptr)},
          {"high_water_at_least", process.high_water_at_least},
          {"write_tracked", process.write_tracked},
          {"copies_estimate", view.copies_estimate},
          {"lost_events", process.lost_events},
          {"notes", process.notes},
          {"asked_s", std::move(asked)},
          {"sized_edges_s", process.sized_edges_s}};
}

// What stands above the verdicts of a process.
Json heads_json(const RecordingAccount& recording, const std::vector<ProcessSection>& sections) {
  Json heads = Json::array();
  for (const ProcessSection& section : sections)
    heads.push_back({{"pid", section.process->account->pid}, {"text", head_line(recording, *section.process)}});
  return heads;
}

// Which processes are named in the verdicts of another one, and as what.
Json alike_json(const View& view, const std::vector<ProcessSection>& sections) {
  Json alike = Json::array();
  for (const ProcessSection& section : sections) {
    if (section.alike.empty()) continue;
    Json pids = Json::array();
    for (const ProcessView* process : section.alike) pids.push_back(process->account->pid);
    alike.push_back(
        {{"pid", section.process->account->pid}, {"pids", std::move(pids)}, {"text", alike_text(view, section)}});
  }
  return alike;
}

Json oom_kills_json(const RecordingInfo& info) {
  Json kills = Json::array();
  for (const OomKill& kill : info.oom_kills)
    kills.push_back({{"time_s", kill.time_s}, {"pid", kill.pid}, {"line", kill.line}});
  return kills;
}

void write_snapshots(const RecordingAccount& recording, const Shown& shown, HtmlColumns& columns) {
  HtmlColumn& count = columns.whole("snapshot_count");
  HtmlColumn& time = columns.float64("snapshot_time");
  HtmlColumn& walked = columns.float64("snapshot_looked");  // before it: an estimate since then
  HtmlColumn& rss = columns.whole("snapshot_rss");
  HtmlColumn& flags = columns.whole("snapshot_flags");  // 1: page liveness was read; 2: skewed; 4: asked for
  for (std::size_t i = 0; i < shown.size(); ++i) {
    count.add(static_cast<std::int64_t>(shown[i].size()));
    rss.begin_run();
    for (const std::uint32_t at : shown[i]) {
      const Account& account = recording.processes[i].accounts[at];
      time.add_float(account.time_s);
      walked.add_float(account.estimated_from_s.value_or(account.time_s));
      rss.add_delta(account.rss_bytes);
      flags.add((account.has_liveness ? 1 : 0) | (account.skewed ? 2 : 0) | (account.asked ? 4 : 0));
    }
  }
}

// What only the process itself maps, by cause.
void write_exclusive(const RecordingAccount& recording, const Shown& shown, HtmlColumns& columns) {
  HtmlColumn& of_process = columns.whole("exclusive_process");
  HtmlColumn& of_cause = columns.whole("exclusive_cause");
  HtmlColumn& count = columns.whole("exclusive_changes");
  HtmlColumn& at_column = columns.whole("exclusive_at");
  HtmlColumn& bytes = columns.whole("exclusive_bytes");
  for (std::size_t i = 0; i < shown.size(); ++i) {
    std::array<HtmlSeries, kCauseCount> series;
    for (std::uint32_t at = 0; at < shown[i].size(); ++at) {
      const SliceList& slices = recording.processes[i].accounts[shown[i][at]].slices;
      for (std::size_t cause = 0; cause < kCauseCount; ++cause)
        series.at(cause).set(at, slices.sum_of(static_cast<Cause>(cause)).exclusive_bytes);
    }
    for (std::size_t cause = 0; cause < kCauseCount; ++cause) {
      const auto& changes = series.at(cause).changes();
      if (changes.empty()) continue;
      of_process.add_delta(static_cast<std::int64_t>(i));
      of_cause.add(static_cast<std::int64_t>(cause));
      count.add(static_cast<std::int64_t>(changes.size()));
      at_column.begin_run();
      for (const HtmlSeries::Change& change : changes) {
        at_column.add_delta(change.at);
        bytes.add(change.bytes);
      }
    }
  }
}

std::int64_t microseconds(double time_s) { return std::llround(time_s * 1e6); }

// RSS as it was polled. Returns how many polls there were in all.
std::size_t write_polls(const RecordingAccount& recording, std::size_t most, HtmlColumns& columns) {
  const auto counts = counts_of(recording, [](const ProcessAccount& process) { return std::span(process.polls); });
  const std::size_t of_each = share_of_each(counts, most);
  HtmlColumn& count = columns.whole("poll_count");
  HtmlColumn& time = columns.whole("poll_time");  // microseconds
  HtmlColumn& rss = columns.whole("poll_rss");
  HtmlColumn& shared = columns.whole("poll_shared");
  std::size_t all = 0;
  for (const ProcessAccount& process : recording.processes) {
    const auto& polls = process.polls;
    all += polls.size();
    const auto kept = thinned(polls.size(), of_each, [&](std::size_t i) { return polls[i].rss_bytes; });
    count.add(static_cast<std::int64_t>(kept.size()));
    for (HtmlColumn* column : {&time, &rss, &shared}) column->begin_run();
    for (const std::uint32_t at : kept) {
      time.add_delta(microseconds(polls[at].time_s));
      rss.add_delta(polls[at].rss_bytes);
      shared.add_delta(polls[at].shared_bytes);
    }
  }
  return all;
}

constexpr std::int64_t kNotKnown = -1;

// PSS at each snapshot and reading: as a report with that edge tells it, and as the kernel said.
void write_pss(const ProcessTimes& times, const Shown& shown, std::size_t most, HtmlColumns& columns) {
  const RecordingAccount& recording = times.recording();
  const auto counts = counts_of(recording, [](const ProcessAccount& process) { return std::span(process.totals); });
  const std::size_t of_each = share_of_each(counts, most);
  HtmlColumn& count = columns.whole("pss_count");
  HtmlColumn& time = columns.float64("pss_time");
  HtmlColumn& state = columns.whole("pss_state");  // twice the bytes, odd for estimates
  HtmlColumn& read = columns.whole("pss_read");    // at the time itself
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const ProcessAccount& process = recording.processes[i];
    const auto pss = [&](std::size_t at) { return process.totals[at].pss_bytes.value_or(kNotKnown); };
    std::map<double, std::int64_t> moments;
    for (const std::uint32_t at : shown[i]) moments.emplace(process.accounts[at].time_s, kNotKnown);
    for (const std::uint32_t at : thinned(process.totals.size(), of_each, pss))
      moments[process.totals[at].time_s] = pss(at);
    count.add(static_cast<std::int64_t>(moments.size()));
    state.begin_run();
    read.begin_run();
    for (const auto& [time_s, reading] : moments) {
      const PssMoment moment = pss_of_process(times, process, time_s);
      time.add_float(time_s);
      state.add_delta(moment.bytes ? *moment.bytes * 2 + (moment.estimate ? 1 : 0) : kNotKnown);
      read.add_delta(reading);
    }
  }
}

// PSS of all processes together whenever it may have changed. Returns whether some of these moments are left out.
bool write_family_pss(const ProcessTimes& times, const Shown& shown, std::size_t most, HtmlColumns& columns) {
  std::set<double> moments;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const ProcessAccount& process = times.recording().processes[i];
    moments.insert(process.born_s);
    if (process.left_s) moments.insert(*process.left_s);
    if (const auto until_s = there_until(process))  // right after it
      moments.insert(std::nextafter(*until_s, std::numeric_limits<double>::infinity()));
    for (const std::uint32_t at : shown[i]) moments.insert(process.accounts[at].time_s);
    for (const KernelTotals& totals : process.totals) moments.insert(totals.time_s);
  }
  HtmlColumn& time = columns.float64("family_pss_time");
  HtmlColumn& state = columns.whole("family_pss_state");
  const std::size_t step = moments.size() / std::max<std::size_t>(most, 1) + 1;
  std::size_t at = 0;
  for (const double time_s : moments) {
    if (at++ % step != 0) continue;
    const PssMoment moment = pss_of_family(times, time_s);
    time.add_float(time_s);
    state.add_delta(moment.bytes ? *moment.bytes * 2 + (moment.estimate ? 1 : 0) : kNotKnown);
  }
  return step > 1;
}

// Copies of what a fork made shared. Small ones beyond the bound lose their lines, not their bytes.
std::size_t write_copies(const RecordingAccount& recording, std::size_t most, HtmlStacks& stacks,
                         HtmlColumns& columns) {
  std::vector<std::int64_t> sizes;
  for (const ProcessAccount& process : recording.processes)
    for (const CowSlice& slice : process.copies) sizes.push_back(std::abs(slice.copied_bytes));
  std::int64_t least = 0;
  if (sizes.size() > most) {
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(most), sizes.end(), std::greater<>{});
    least = sizes[most] + 1;
  }
  HtmlColumn& of_process = columns.whole("copy_process");
  HtmlColumn& time = columns.float64("copy_time");
  HtmlColumn& made = columns.whole("copy_made");
  HtmlColumn& written = columns.whole("copy_written");
  HtmlColumn& bytes = columns.whole("copy_bytes");
  HtmlColumn& variance = columns.float64("copy_variance");
  HtmlColumn& flags = columns.whole("copy_flags");  // 1: in a large block; 2: several of them
  std::size_t merged = 0;
  const auto add = [&](std::size_t process, const CowSlice& slice, std::int64_t bits) {
    of_process.add_delta(static_cast<std::int64_t>(process));
    time.add_float(slice.time_s);
    made.add_delta(static_cast<std::int64_t>(stacks.number_of(slice.allocated_at)));
    written.add_delta(static_cast<std::int64_t>(stacks.number_of(slice.written_at)));
    bytes.add(slice.copied_bytes);
    variance.add_float(slice.variance);
    flags.add(bits);
  };
  for (std::size_t i = 0; i < recording.processes.size(); ++i) {
    std::map<double, std::int64_t> rest;
    for (const CowSlice& slice : recording.processes[i].copies) {
      if (std::abs(slice.copied_bytes) >= least) {
        add(i, slice, slice.in_large_block ? 1 : 0);
        continue;
      }
      rest[slice.time_s] += slice.copied_bytes;
      ++merged;
    }
    for (const auto& [time_s, sum] : rest) add(i, CowSlice{.time_s = time_s, .copied_bytes = sum}, 2);
  }
  return merged;
}

}  // namespace

HtmlBounds HtmlBounds::halved() const {
  HtmlBounds half = *this;
  for (std::size_t HtmlBounds::*bound :
       {&HtmlBounds::snapshots, &HtmlBounds::sites, &HtmlBounds::changes, &HtmlBounds::stack_nodes, &HtmlBounds::shares,
        &HtmlBounds::copies, &HtmlBounds::polls, &HtmlBounds::picture_entries, &HtmlBounds::family_moments})
    half.*bound /= 2;
  return half;
}

std::string html_data(const View& view, const std::vector<Verdict>& verdicts, const HtmlBounds& bounds) {
  const RecordingAccount& recording = *view.recording;
  const auto counts = counts_of(recording, [](const ProcessAccount& process) { return std::span(process.accounts); });
  const std::size_t of_each = share_of_each(counts, bounds.snapshots);
  Shown shown;
  std::size_t snapshots = 0, all_snapshots = 0;
  for (const ProcessAccount& process : recording.processes) {
    shown.push_back(shown_snapshots(process, of_each));
    snapshots += shown.back().size();
    all_snapshots += process.accounts.size();
  }

  HtmlColumns columns;
  HtmlStrings strings;
  HtmlStacks stacks(recording.stacks);
  write_snapshots(recording, shown, columns);
  write_exclusive(recording, shown, columns);
  const HtmlSitesLeftOut left_out = write_sites(recording, shown, bounds, stacks, strings, columns);
  const std::size_t polls = write_polls(recording, bounds.polls, columns);
  const ProcessTimes times(recording);
  write_pss(times, shown, bounds.polls, columns);
  const bool family_pss_thinned = write_family_pss(times, shown, bounds.family_moments, columns);
  const std::size_t merged_copies = write_copies(recording, bounds.copies, stacks, columns);
  const std::size_t pictures_left_out =
      write_pictures(recording, {bounds.picture_entries, bounds.stack_nodes}, stacks, strings, columns);
  stacks.write(strings, columns);

  Json processes = Json::array();
  for (const ProcessView& process : view.processes) processes.push_back(process_json(recording, process));
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  const Json header{{"format", kFormat},
                    {"report", report_json(view, verdicts)},
                    {"heads", heads_json(recording, sections)},
                    {"alike", alike_json(view, sections)},
                    {"rest", rest_text(view, sections, verdicts)},
                    {"causes", html_causes()},
                    {"oom_kills", oom_kills_json(recording.info)},
                    {"processes", std::move(processes)},
                    {"strings", strings.json()},
                    {"bounds",
                     {{"snapshots", snapshots},
                      {"all_snapshots", all_snapshots},
                      {"sites_left_out", left_out.sites},
                      {"largest_left_out", left_out.most_bytes},
                      {"shares_left_out", left_out.shares},
                      {"copies_merged", merged_copies},
                      {"pictures_left_out", pictures_left_out},
                      {"all_polls", polls},
                      {"family_pss_thinned", family_pss_thinned}}},
                    {"columns", columns.rows()}};
  const std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string data = std::to_string(text.size()) + "\n" + text;
  columns.append_to(data);
  return data;
}

}  // namespace whyrss
