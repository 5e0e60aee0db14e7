#include "job/node_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.h"

namespace whyrss {
namespace {

bool is_private(Cause cause) {
  return cause != Cause::file_cache && cause != Cause::shared_memory && cause != Cause::fork_shared;
}

// Where no boot id was recorded, one name is one node.
bool is_same_node(const NodeSum& node, const ReducedRecording& recording) {
  return recording.boot_id.empty() ? node.boot_id.empty() && node.hosts.front() == recording.host
                                   : node.boot_id == recording.boot_id;
}

double fullness(const NodeSum& node) {
  return node.limit.value_or(0) > 0 ? static_cast<double>(node.total()) / static_cast<double>(*node.limit) : 0;
}

// What has no name of its own (deleted, SysV, memfd) is the same memory only within a recording.
std::string shared_key(const ReducedRecording& recording, const std::string& mapping) {
  return mapping.starts_with('/') && !mapping.ends_with("(deleted)") && !mapping.starts_with("/memfd:")
             ? mapping
             : recording.session + mapping;
}

std::int64_t sum_once(const auto& mapped) {
  std::int64_t sum = 0;
  for (const auto& [name, one] : mapped) sum += one.most;
  return sum;
}

}  // namespace

void NodeSums::add(const ReducedRecording& recording) {
  if (nodes_.empty() || !is_same_node(nodes_.back(), recording)) {
    if (!nodes_.empty()) close_node();
    nodes_.push_back({.boot_id = recording.boot_id,
                      .hosts = {recording.host},
                      .started = recording.started,
                      .begin_ns = recording.started_ns});
    end_ms_ = 0;
  }
  NodeSum& node = nodes_.back();
  names_.insert(recording.node);
  hosts_.insert(recording.host);
  node.started = std::min(node.started, recording.started);
  node.begin_ns = std::min(node.begin_ns, recording.started_ns);
  end_ms_ =
      std::max(end_ms_, static_cast<double>(recording.started_ns) / 1e6 + static_cast<double>(recording.duration_ms));
  ++node.recording_count;
  node.process_count += recording.processes.size();
  add_limits(recording);
  for (const ReducedProcess& process : recording.processes) add_process(recording, process);
}

void NodeSums::add_limits(const ReducedRecording& recording) {
  NodeSum& node = nodes_.back();
  memory_total_ = std::max(memory_total_, recording.memory_total);
  groups_.insert(recording.group_limit ? recording.group_path : std::string());
  if (!recording.group_limit) return;
  node.limit = std::max(node.limit.value_or(0), *recording.group_limit);
  if (recording.group_peak) node.group_peak = std::max(node.group_peak.value_or(0), *recording.group_peak);
}

void NodeSums::add_process(const ReducedRecording& recording, const ReducedProcess& process) {
  NodeSum& node = nodes_.back();
  if (process.oom_killed) ++node.oom_killed;
  if (process.rank) ranks_.insert(*process.rank);
  node.rss_peaks += process.rss_peak;
  (process.pss_peak ? node.pss_peaks : node.without_pss) += process.pss_peak.value_or(process.rss_peak);
  add_changes(recording, process);
  std::map<std::string, std::int64_t> files, shared;  // several lines may have mapped one
  for (const LineFigures& line : process.lines) {
    const std::string& mapping = recording.lines[line.line].mapping;
    if (line.cause == Cause::file_cache) files[mapping] += line.at_peak;
    if (line.cause == Cause::shared_memory) shared[shared_key(recording, mapping)] += line.at_peak;
  }
  const auto add_mapped = [](const auto& of_process, auto& of_node) {
    for (const auto& [name, bytes] : of_process) {
      Mapped& mapped = of_node[name];
      mapped.most = std::max(mapped.most, bytes);
      mapped.sum += bytes;
      ++mapped.process_count;
    }
  };
  add_mapped(files, files_);
  add_mapped(shared, shared_);
  for (const CauseFigures& cause : process.causes) {
    if (cause.cause == Cause::file_cache) unlisted_files_ += cause.omitted_at_peak;
    if (cause.cause == Cause::shared_memory) unlisted_shared_ += cause.omitted_at_peak;
  }
}

// All of one kernel are on one clock.
void NodeSums::add_changes(const ReducedRecording& recording, const ReducedProcess& process) {
  constexpr std::int64_t kNsPerMs = 1'000'000;
  const std::int64_t origin_ms = recording.started_ns / kNsPerMs;
  Change before;
  for (const MemoryMoment& moment : process.moments) {
    Change now;
    for (std::size_t cause = 0; cause < kCauseCount; ++cause) {
      now.rss_bytes += moment.bytes[cause];
      if (is_private(static_cast<Cause>(cause))) now.private_bytes += moment.bytes[cause];
    }
    changes_.push_back(
        {origin_ms + moment.time_ms, now.private_bytes - before.private_bytes, now.rss_bytes - before.rss_bytes});
    before = now;
  }
  if (process.ended_ms) changes_.push_back({origin_ms + *process.ended_ms, -before.private_bytes, -before.rss_bytes});
}

void NodeSums::close_node() {
  NodeSum& node = nodes_.back();
  std::ranges::stable_sort(changes_, {}, &Change::time_ms);
  Change now;
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    now.private_bytes += changes_[i].private_bytes;
    now.rss_bytes += changes_[i].rss_bytes;
    if (i + 1 < changes_.size() && changes_[i + 1].time_ms == changes_[i].time_ms) continue;  // all of one moment
    node.private_peak = std::max(node.private_peak, now.private_bytes);
    node.rss_sum_peak = std::max(node.rss_sum_peak, now.rss_bytes);
  }
  node.files_once = sum_once(files_) + unlisted_files_;
  node.shared_once = sum_once(shared_) + unlisted_shared_;
  node.name = join({names_.begin(), names_.end()}, "+");
  node.hosts.assign(hosts_.begin(), hosts_.end());
  node.ranks.assign(ranks_.begin(), ranks_.end());
  // Containers have a limit each; what they do together the machine limits.
  node.length_ms = end_ms_ - static_cast<double>(node.begin_ns) / 1e6;
  node.limit_is_group = groups_.size() == 1 && !groups_.begin()->empty();
  if (!node.limit_is_group) node.limit = memory_total_ > 0 ? std::optional(memory_total_) : std::nullopt;
  for (const auto& [name, mapped] : files_) {
    if (name.empty()) continue;  // the file is not known
    SharedFile& file = job_files_[name];
    file.mapping = name;
    ++file.node_count;
    file.process_count += mapped.process_count;
    file.rss_sum += mapped.sum;
    file.once += mapped.most;
  }
  changes_.clear();
  files_.clear();
  shared_.clear();
  names_.clear();
  hosts_.clear();
  ranks_.clear();
  groups_.clear();
  memory_total_ = unlisted_files_ = unlisted_shared_ = 0;
}

std::vector<NodeSum> NodeSums::nodes() {
  if (!nodes_.empty()) close_node();
  std::ranges::stable_sort(nodes_, [](const NodeSum& a, const NodeSum& b) {
    return std::pair(fullness(a), a.total()) > std::pair(fullness(b), b.total());
  });
  return std::move(nodes_);
}

std::vector<SharedFile> NodeSums::files() const {
  std::vector<SharedFile> files;
  for (const auto& [name, file] : job_files_) files.push_back(file);
  std::ranges::stable_sort(files, std::greater<>(), &SharedFile::rss_sum);
  return files;
}

}  // namespace whyrss
