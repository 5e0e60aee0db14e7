#include "job/job_timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "job/group_key.h"

namespace whyrss {
namespace {

constexpr std::size_t kMostGroups = 12;  // of which one can choose; the others are in the sum

// Times are from a file, and may be any number: doubles have no range to leave.
double origin_ms(std::int64_t started_ns) { return static_cast<double>(started_ns) / 1e6; }

class Sums {
 public:
  struct Stretch {
    std::array<double, kCauseCount> bytes{};
    LogSketch rss;
    std::int64_t max = 0;
  };
  Sums() : stretches_(kStretches) {}

  // `begin` and `end`: in stretches since the job began.
  void add(const MemoryMoment& moment, double begin, double end) {
    const auto first = static_cast<std::size_t>(begin), last = std::min(static_cast<std::size_t>(end), kStretches - 1);
    for (std::size_t i = first; i <= last; ++i) {
      const auto at = static_cast<double>(i);
      const double share = std::min(end, at + 1) - std::max(begin, at);
      for (std::size_t cause = 0; share > 0 && cause < kCauseCount; ++cause)
        if (moment.bytes[cause] != 0) stretches_[i].bytes[cause] += share * static_cast<double>(moment.bytes[cause]);
    }
  }
  void add_most(std::size_t stretch, std::int64_t rss_bytes) {
    stretches_[stretch].rss.add(rss_bytes);
    stretches_[stretch].max = std::max(stretches_[stretch].max, rss_bytes);
  }

  void merge(const Sums& other) {
    for (std::size_t i = 0; i < kStretches; ++i) {
      for (std::size_t cause = 0; cause < kCauseCount; ++cause)
        stretches_[i].bytes[cause] += other.stretches_[i].bytes[cause];
      stretches_[i].rss.merge(other.stretches_[i].rss);
      stretches_[i].max = std::max(stretches_[i].max, other.stretches_[i].max);
    }
  }

  [[nodiscard]] std::vector<TimelineStretch> stretches() const {
    std::vector<TimelineStretch> list(kStretches);
    for (std::size_t i = 0; i < kStretches; ++i) {
      const Stretch& sum = stretches_[i];
      for (std::size_t cause = 0; cause < kCauseCount; ++cause) list[i].causes[cause] = std::llround(sum.bytes[cause]);
      list[i].process_count = sum.rss.weight();
      list[i].max = sum.max;
      // A sketch errs by 1 %.
      list[i].p50 = std::min(sum.rss.quantile(0.5), sum.max);
      list[i].p95 = std::min(sum.rss.quantile(0.95), sum.max);
      list[i].p99 = std::min(sum.rss.quantile(0.99), sum.max);
    }
    return list;
  }

 private:
  std::vector<Stretch> stretches_;
};

class Timeline {
 public:
  explicit Timeline(const JobView& job) : sums_(std::min(job.groups.size(), kMostGroups) + 1) {
    for (std::size_t i = 0; i < job.groups.size(); ++i)
      places_.emplace(key_of(job.groups[i]), std::min(i, sums_.size() - 1));
    for (const NodeSum& node : job.nodes) {
      begins_.emplace(node_key(node.boot_id, node.hosts.front()), origin_ms(node.begin_ns));
      length_ms_ = std::max(length_ms_, node.length_ms);
    }
  }

  void add(const ReducedRecording& recording) {
    const auto begin = begins_.find(node_key(recording.boot_id, recording.host));
    const double shift_ms = begin == begins_.end() ? 0 : origin_ms(recording.started_ns) - begin->second;
    const ProcessesByPid by_pid = by_pid_of(recording);
    for (const ReducedProcess& process : recording.processes) {
      const auto place = places_.find({process.name, is_worker(process, by_pid)});
      if (place != places_.end()) add(process, shift_ms, recording, sums_[place->second]);
    }
  }

  [[nodiscard]] JobTimeline take() const {
    JobTimeline timeline{.stretch_s = length_ms_ / 1000 / kStretches};
    Sums all;
    for (const Sums& sum : sums_) all.merge(sum);
    timeline.groups.push_back({.stretches = all.stretches()});
    for (std::size_t i = 0; i + 1 < sums_.size(); ++i)
      timeline.groups.push_back({.group = i, .stretches = sums_[i].stretches()});
    return timeline;
  }

 private:
  // Where no boot id was recorded, one name is one node.
  static std::string node_key(const std::string& boot_id, const std::string& host) {
    return boot_id.empty() ? "host " + host : boot_id;
  }

  // What a snapshot shows holds until the next one, or until the process ends.
  void add(const ReducedProcess& process, double shift_ms, const ReducedRecording& recording, Sums& sums) const {
    std::array<std::int64_t, kStretches> most{};
    std::array<bool, kStretches> is_there{};
    const auto at = [&](std::int64_t time_ms) {
      const double stretch = (static_cast<double>(time_ms) + shift_ms) * kStretches / length_ms_;
      return std::clamp(stretch, 0.0, static_cast<double>(kStretches));
    };
    const std::int64_t there_until = process.ended_ms.value_or(recording.duration_ms);
    for (std::size_t i = 0; i < process.moments.size(); ++i) {
      const MemoryMoment& moment = process.moments[i];
      const double begin = at(moment.time_ms);
      const double end = i + 1 < process.moments.size() ? at(process.moments[i + 1].time_ms) : at(there_until);
      sums.add(moment, begin, std::max(begin, end));
      std::int64_t rss_bytes = 0;
      for (const std::int64_t bytes : moment.bytes) rss_bytes += bytes;
      const auto first = std::min(static_cast<std::size_t>(begin), kStretches - 1);
      for (std::size_t k = first; k < kStretches && (k == first || static_cast<double>(k) < end); ++k) {
        is_there[k] = true;
        most[k] = std::max(most[k], rss_bytes);
      }
    }
    for (std::size_t k = 0; k < kStretches; ++k)
      if (is_there[k]) sums.add_most(k, most[k]);
  }

  std::vector<Sums> sums_;  // of the largest groups, and of all others
  std::map<GroupKey, std::size_t> places_;
  std::map<std::string, double> begins_;  // of nodes
  double length_ms_ = 1;                  // of the longest node
};

}  // namespace

Result<JobTimeline> job_timeline(const JobView& job, const PartIndex& index, const RecordingReader& read,
                                 const std::function<void(double)>& done) {
  Timeline timeline(job);
  for (std::size_t entry = 0; entry < index.entries.size(); ++entry) {
    const Result<ReducedRecording> recording = read(entry);
    if (!recording) return Error{recording.error()};
    timeline.add(*recording);
    if (done) done(static_cast<double>(entry + 1) / static_cast<double>(index.entries.size()));
  }
  return timeline.take();
}

}  // namespace whyrss
