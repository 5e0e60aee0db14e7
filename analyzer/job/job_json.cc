#include "job/job_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "job/job_text.h"
#include "report/wording/optional_json.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

Json spread_json(const Spread& spread) {
  return {
      {"min", spread.min}, {"median", spread.median}, {"p95", spread.p95}, {"max", spread.max}, {"sum", spread.sum}};
}

Json label_json(const ProcessLabel& label) {
  return {{"rank", optional_json(label.rank)}, {"pid", label.pid}, {"node", label.node}};
}

void add_line(Json& json, Cause cause, const JobLine& line) {
  json["cause"] = info(cause).slug;
  json["line"] = line.text;
  json["file"] = line.file;
  json["mapping"] = line.mapping.empty() ? Json(nullptr) : Json(line.mapping);
}

Json line_json(const GroupLine& line) {
  Json json = Json::object();
  add_line(json, line.cause, line.line);
  json["processes"] = line.process_count;
  json["sum"] = line.sum;
  json["error"] = line.error;
  json["standard_error"] = std::llround(std::sqrt(line.variance));
  json["growth_sum"] = line.growth_sum;
  json["median"] = line.median;
  json["p95"] = line.p95;
  json["max"] = line.most;
  return json;
}

Json verdict_json(const GroupVerdict& verdict) {
  return {{"id", verdict.id},
          {"severity", slug(verdict.severity)},
          {"processes", verdict.process_count},
          {"ranks", verdict.ranks},
          {"bytes", spread_json(verdict.bytes)},
          {"headline", verdict.headline},
          {"most", label_json(verdict.most)}};
}

template <typename List, typename ToJson>
Json list_json(const List& list, std::size_t most, const ToJson& to_json) {
  Json json = Json::array();
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i) json.push_back(to_json(list[i]));
  return json;
}

Json group_json(const JobGroup& group, std::size_t top) {
  Json causes = Json::array();
  for (const GroupCause& cause : group.causes)
    causes.push_back({{"cause", info(cause.cause).slug}, {"at_peak", spread_json(cause.at_peak)}});
  return {{"name", group.name},
          {"workers", group.is_worker},
          {"processes", group.process_count},
          {"ranks", group.ranks},
          {"rss_peak", spread_json(group.rss_peak)},
          {"rss_last", spread_json(group.rss_last)},
          {"rss_by_time", {{"p50", group.p50_by_time}, {"p95", group.p95_by_time}, {"p99", group.p99_by_time}}},
          {"largest", label_json(group.largest)},
          {"causes", std::move(causes)},
          {"lines", list_json(group.lines, top, line_json)},
          {"verdicts", list_json(group.verdicts, group.verdicts.size(), verdict_json)}};
}

Json outlier_json(const JobView& job, const Outlier& outlier) {
  Json json = label_json(outlier.process);
  json["group"] = outlier.group;
  json["rss_peak"] = outlier.rss_peak;
  json["held"] = outlier.held;
  json["median"] = outlier.median;
  json["headline"] = outlier_text(job, outlier);
  json["most"] = nullptr;
  if (!outlier.has_line) return json;
  json["most"] = Json::object();
  add_line(json["most"], outlier.cause, outlier.line);
  json["most"]["bytes"] = outlier.line_bytes;
  json["most"]["median"] = outlier.line_median;
  return json;
}

Json node_json(const NodeSum& node) {
  return {{"name", node.name},
          {"boot_id", node.boot_id},
          {"hosts", node.hosts},
          {"ranks", node.ranks},
          {"recordings", node.recording_count},
          {"processes", node.process_count},
          {"started", node.started},
          {"private_peak", node.private_peak},
          {"files_once", node.files_once},
          {"shared_once", node.shared_once},
          {"total", node.total()},
          {"rss_sum_peak", node.rss_sum_peak},
          {"rss_peaks", node.rss_peaks},
          {"pss_peaks", node.pss_peaks},
          {"without_pss", node.without_pss},
          {"limit", optional_json(node.limit)},
          {"limit_of", node.limit ? Json(node.limit_is_group ? "cgroup" : "machine") : Json(nullptr)},
          {"cgroup_peak", optional_json(node.group_peak)},
          {"oom_killed", node.oom_killed}};
}

Json file_json(const SharedFile& file) {
  return {{"mapping", file.mapping},
          {"nodes", file.node_count},
          {"processes", file.process_count},
          {"rss_sum", file.rss_sum},
          {"once", file.once}};
}

Json cause_json(const CauseFigures& cause) {
  return {{"cause", info(cause.cause).slug},
          {"rss", {{"first", cause.first}, {"last", cause.last}, {"peak", cause.peak}, {"at_peak", cause.at_peak}}},
          {"sole_owner_bytes", cause.sole_owner},
          {"not_listed",
           {{"lines", cause.omitted},
            {"growth", cause.omitted_growth},
            {"resident", cause.omitted_resident},
            {"at_peak", cause.omitted_at_peak},
            {"most", cause.omitted_most}}}};
}

Json moment_json(const MemoryMoment& moment) {
  Json causes = Json::object();
  for (std::size_t cause = 0; cause < kCauseCount; ++cause)
    if (moment.bytes[cause] != 0) causes[std::string(kCauses[cause].slug)] = moment.bytes[cause];
  return {{"time_s", static_cast<double>(moment.time_ms) / 1000}, {"causes", std::move(causes)}};
}

Json process_json(const ProcessDetail& detail) {
  const ReducedProcess& process = detail.process;
  Json json = label_json(detail.label);
  json["name"] = process.name;
  json["local_rank"] = optional_json(process.local_rank);
  json["world_size"] = optional_json(process.world_size);
  json["born"] = process.born_by_fork ? "fork" : "exec";
  json["rss"] = {{"first", process.rss_first}, {"last", process.rss_last}, {"peak", process.rss_peak}};
  json["pss_peak"] = optional_json(process.pss_peak);
  json["copied"] = process.copied;
  json["causes"] = list_json(process.causes, process.causes.size(), cause_json);
  json["lines"] = Json::array();
  for (std::size_t i = 0; i < process.lines.size(); ++i) {
    Json line = Json::object();
    add_line(line, process.lines[i].cause, detail.lines[i]);
    line["growth"] = process.lines[i].growth;
    line["resident"] = process.lines[i].resident;
    line["at_peak"] = process.lines[i].at_peak;
    json["lines"].push_back(std::move(line));
  }
  json["moments"] = list_json(process.moments, process.moments.size(), moment_json);
  return json;
}

}  // namespace

void add_recordings(Json& json, const JobView& job) {
  json["path"] = job.path;
  json["jobs"] = job.jobs;
  json["versions"] = job.versions;
  json["started"] = job.started;
  json["recordings"] = job.recording_count;
  json["complete"] = job.complete_count;
}

void add_what_is_missing(Json& json, const JobView& job) {
  json["world_size"] = optional_json(job.world_size);
  json["ranks"] = job.ranks;
  json["missing_ranks"] = job.missing_ranks;
  json["expected_nodes"] = optional_json(job.expected_nodes);
  json["missing_nodes"] = job.missing_nodes;
  json["lost"] = {{"events", job.lost_events}, {"snapshots", job.lost_snapshots}};
  json["notes"] = job.notes;
}

Json job_document(const JobView& job, const JobBounds& bounds) {
  Json json{{"schema", "whyrss.job/1"}};
  add_recordings(json, job);
  json["process_count"] = job.process_count;
  add_what_is_missing(json, job);
  json["outliers"] = Json::array();
  for (const Outlier& outlier : job.outliers) json["outliers"].push_back(outlier_json(job, outlier));
  json["groups"] =
      list_json(job.groups, job.groups.size(), [&](const JobGroup& group) { return group_json(group, bounds.lines); });
  json["nodes"] = list_json(job.nodes, bounds.nodes, node_json);
  json["files"] = list_json(job.files, bounds.files, file_json);
  json["processes"] = list_json(job.processes, job.processes.size(), process_json);
  return json;
}

std::string render_job_json(const JobView& job, std::size_t top) {
  return job_document(job, {top, top, top}).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace whyrss
