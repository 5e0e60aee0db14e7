#include "job/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "export/export_view.h"
#include "job/expected.h"
#include "job/group_key.h"
#include "job/group_sums.h"
#include "job/node_sums.h"
#include "report/wording/format.h"
#include "support/text.h"

namespace whyrss {
namespace {

// Of a job gone wrong all ranks may be outliers; each costs another reading of its recording.
constexpr std::size_t kMostOutliers = 100;
// More than any scheduler starts the tasks of a job apart.
constexpr double kClocksApartS = 3600;
constexpr std::int64_t kMostRanks = 10'000'000;

class Fold {
 public:
  Fold(const PartIndex& index, const RecordingReader& read) : index_(index), read_(read) {}

  Status add(std::size_t entry) {
    Result<ReducedRecording> recording = read_(entry);
    if (!recording) return Error{recording.error()};
    ++view_.recording_count;
    if (recording->complete)
      ++view_.complete_count;
    else
      ++incomplete_[recording->incomplete_why];
    view_.process_count += recording->processes.size();
    view_.lost_events += recording->lost_events;
    view_.lost_snapshots += recording->lost_snapshots;
    if (!recording->job.empty()) jobs_.insert(recording->job);
    versions_.insert(recording->version);
    if (view_.started.empty() || recording->started < view_.started) view_.started = recording->started;
    add_processes(entry, *recording);
    nodes_.add(*recording);
    return Done{};
  }

  Result<JobView> take(std::size_t detail_count) {
    view_.jobs.assign(jobs_.begin(), jobs_.end());
    view_.versions.assign(versions_.begin(), versions_.end());
    view_.nodes = nodes_.nodes();
    view_.files = nodes_.files();
    for (auto& [key, sums] : groups_) {
      JobGroup group = sums.group(lines_);
      group.name = key.first;
      group.is_worker = key.second;
      view_.groups.push_back(std::move(group));
      group_sums_.push_back(&sums);
    }
    if (const Status found = find_outliers(); !found) return Error{found.error()};
    if (const Status detailed = add_details(detail_count); !detailed) return Error{detailed.error()};
    sort_groups();
    add_expected();
    add_notes();
    return std::move(view_);
  }

 private:
  void add_processes(std::size_t entry, const ReducedRecording& recording) {
    const std::vector<std::uint32_t> numbers = lines_.numbers_of(recording.lines);
    const ProcessesByPid by_pid = by_pid_of(recording);
    for (std::size_t i = 0; i < recording.processes.size(); ++i) {
      const ReducedProcess& process = recording.processes[i];
      const ProcessLabel label{{entry, i}, process.pid, process.rank, recording.node};
      groups_[{process.name, is_worker(process, by_pid)}].add(process, label, numbers);
      if (process.rank) ranks_.insert(*process.rank);
      if (process.world_size)
        view_.world_size = std::max(view_.world_size.value_or(0), std::min(*process.world_size, kMostRanks));
    }
  }

  Status find_outliers() {
    for (std::size_t group = 0; group < group_sums_.size(); ++group) {
      std::int64_t median = 0;
      for (const GroupSums::Row& row : group_sums_[group]->outlying_rows(median))
        view_.outliers.push_back(
            {.process = row.label, .group = group, .rss_peak = row.rss_peak, .held = row.held, .median = median});
    }
    std::ranges::stable_sort(view_.outliers, std::greater<>(),
                             [](const Outlier& one) { return one.held - one.median; });
    if (view_.outliers.size() > kMostOutliers) {
      view_.notes.push_back(fmt::format("{} processes hold far more than the median: the {} furthest are shown",
                                        view_.outliers.size(), kMostOutliers));
      view_.outliers.resize(kMostOutliers);
    }
    for (Outlier& outlier : view_.outliers)
      if (Status named = name_line(outlier); !named) return named;
    return Done{};
  }

  // What it has most of beyond the median of its group.
  Status name_line(Outlier& outlier) {
    const Result<ReducedRecording> recording = read_(outlier.process.place.recording);
    if (!recording) return Error{recording.error()};
    std::int64_t most = 0;
    for (const LineFigures& figures : recording->processes.at(outlier.process.place.process).lines) {
      if (figures.cause == Cause::fork_shared) continue;
      const JobLine& line = recording->lines[figures.line];
      const std::int64_t median = group_sums_[outlier.group]->median_of(figures.cause, lines_.number_of(line));
      if (figures.at_peak - median <= most) continue;
      most = figures.at_peak - median;
      outlier.cause = figures.cause;
      outlier.line = line;
      outlier.line_bytes = figures.at_peak;
      outlier.line_median = median;
      outlier.has_line = true;
    }
    return Done{};
  }

  Status add_details(std::size_t count) {
    std::vector<GroupSums::Row> rows;
    for (const GroupSums* group : group_sums_) rows.insert(rows.end(), group->rows().begin(), group->rows().end());
    const std::size_t kept = std::min(count, rows.size());
    std::ranges::partial_sort(rows, rows.begin() + static_cast<std::ptrdiff_t>(kept), is_larger);
    rows.resize(kept);
    std::map<std::size_t, std::vector<std::size_t>> of_recording;  // each is read once
    for (std::size_t i = 0; i < rows.size(); ++i) of_recording[rows[i].label.place.recording].push_back(i);
    view_.processes.resize(rows.size());
    for (const auto& [entry, wanted] : of_recording) {
      Result<ReducedRecording> recording = read_(entry);
      if (!recording) return Error{recording.error()};
      for (const std::size_t i : wanted) {
        ProcessDetail& detail = view_.processes[i];
        detail.label = rows[i].label;
        detail.process = std::move(recording->processes.at(rows[i].label.place.process));
        for (const LineFigures& line : detail.process.lines) detail.lines.push_back(recording->lines[line.line]);
      }
    }
    return Done{};
  }

  // Outliers keep the place of theirs.
  void sort_groups() {
    std::vector<std::size_t> order(view_.groups.size()), place(view_.groups.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return view_.groups[i].rss_peak.sum; });
    std::vector<JobGroup> sorted;
    for (std::size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      sorted.push_back(std::move(view_.groups[order[i]]));
    }
    view_.groups = std::move(sorted);
    for (Outlier& outlier : view_.outliers) outlier.group = place[outlier.group];
  }

  void add_expected() {
    const ExpectedNodes expected = expected_nodes(index_);
    view_.expected_nodes = expected.count;
    view_.missing_nodes = expected.missing;
    if (std::string missing = missing_text(expected); !missing.empty()) view_.notes.push_back(std::move(missing));
    view_.ranks.assign(ranks_.begin(), ranks_.end());
    if (view_.ranks.empty()) return;
    for (std::int64_t rank = 0; rank < view_.world_size.value_or(0); ++rank)
      if (!ranks_.contains(rank)) view_.missing_ranks.push_back(rank);
  }

  void add_notes() {
    const auto note = [&](std::string text) { view_.notes.push_back(std::move(text)); };
    if (view_.jobs.size() > 1)
      note(fmt::format("recordings of {} jobs are merged: {}", view_.jobs.size(), join(view_.jobs, ", ")));
    if (view_.versions.size() > 1)
      note(fmt::format("reduced from recordings of several versions of whyrss: {}", join(view_.versions, ", ")));
    for (const auto& [why, count] : incomplete_)
      note(fmt::format("{} recording{} incomplete: {}", count, count == 1 ? " is" : "s are",
                       why.empty() ? "not known why" : why));
    note_names();
    note_clocks();
  }

  void note_names() {
    std::map<std::string, std::size_t> kernels_of;
    for (const NodeSum& node : view_.nodes)
      for (const std::string& host : node.hosts) ++kernels_of[host];
    for (const auto& [host, kernels] : kernels_of)
      if (kernels > 1)
        view_.notes.push_back(fmt::format(
            "{} machines, or boots of one, are called {}: they are counted as nodes of their own", kernels, host));
  }

  void note_clocks() {
    const auto seconds = [](const NodeSum& node) { return static_cast<double>(wall_ns(node.started)) / 1e9; };
    std::vector<double> starts;
    for (const NodeSum& node : view_.nodes) starts.push_back(seconds(node));
    if (starts.size() < 2) return;
    std::ranges::sort(starts);
    const double median = starts[(starts.size() - 1) / 2];
    for (const NodeSum& node : view_.nodes) {
      const double apart = seconds(node) - median;
      if (std::abs(apart) < kClocksApartS) continue;
      view_.notes.push_back(
          fmt::format("{} began {:.1f} h {} the others, or its clock is wrong: no figure compares clocks of two nodes",
                      node.name, std::abs(apart) / 3600, apart > 0 ? "after" : "before"));
    }
  }

  const PartIndex& index_;
  const RecordingReader& read_;
  JobView view_;
  JobLines lines_;
  NodeSums nodes_;
  std::map<GroupKey, GroupSums> groups_;
  std::vector<const GroupSums*> group_sums_;
  std::set<std::string> jobs_, versions_;
  std::set<std::int64_t> ranks_;
  std::map<std::string, std::size_t> incomplete_;
};

}  // namespace

Result<JobView> fold_job(const std::string& path, const PartIndex& index, const RecordingReader& read,
                         std::size_t detail_count, const std::function<void(double)>& done) {
  Fold fold(index, read);
  for (std::size_t entry = 0; entry < index.entries.size(); ++entry) {
    if (const Status added = fold.add(entry); !added) return Error{added.error()};
    if (done) done(static_cast<double>(entry + 1) / static_cast<double>(index.entries.size()));
  }
  Result<JobView> view = fold.take(detail_count);
  if (view) view->path = path;
  return view;
}

}  // namespace whyrss
