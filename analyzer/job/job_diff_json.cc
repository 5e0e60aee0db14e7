#include <map>
#include <nlohmann/json.hpp>

#include "job/job_diff_formats.h"
#include "job/job_json.h"
#include "report/diff/diff_json.h"
#include "report/wording/optional_json.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

// Beside the figure what it may have more.
Json bounded_json(const DiffFigure& figure, Json json = Json::object()) {
  json = with_figure(std::move(json), figure);
  json["more_a"] = figure.more_a;
  json["more_b"] = figure.more_b;
  return json;
}

Json side_json(const JobView& job) {
  Json json = Json::object();
  add_recordings(json, job);
  json["processes"] = job.process_count;
  json["nodes"] = job.nodes.size();
  add_what_is_missing(json, job);
  return json;
}

Json group_json(const GroupDiff& group) {
  const auto count = [](const JobGroup* side) { return side == nullptr ? 0 : side->process_count; };
  const auto ranks = [](const JobGroup* side) { return side == nullptr ? Json::array() : Json(side->ranks); };
  return {{"name", group.either().name},   {"workers", group.either().is_worker}, {"processes_a", count(group.a)},
          {"processes_b", count(group.b)}, {"ranks_a", ranks(group.a)},           {"ranks_b", ranks(group.b)},
          {"sum", figure_json(group.sum)}, {"median", figure_json(group.median)}, {"p95", figure_json(group.p95)},
          {"max", figure_json(group.max)}};
}

Json outlier_json(const JobDiff& diff, const OutlierDiff& outlier) {
  const Outlier& one = outlier.either();
  const auto held = [](const Outlier* side) { return side == nullptr ? Json(nullptr) : Json(side->held); };
  return {{"state", outlier.a == nullptr   ? "new"
                    : outlier.b == nullptr ? "gone"
                                           : "both"},
          {"rank", optional_json(one.process.rank)},
          {"pid", one.process.pid},
          {"node", one.process.node},
          {"held_a", held(outlier.a)},
          {"held_b", held(outlier.b)},
          {"not_recorded", outlier.is_missing},
          {"headline", outlier_diff_text(diff, outlier)}};
}

Json node_json(const NodeDiff& node) {
  return {{"name_a", node.a->name},
          {"name_b", node.b->name},
          {"ranks", node.b->ranks},
          {"total", figure_json(node.total)},
          {"rss_sum_peak", figure_json(node.rss_sum)},
          {"pss_peaks", bounded_json(node.pss)}};
}

Json lines_json(const JobDiff& diff, std::size_t top) {
  Json lines = Json::array();
  std::map<Cause, DiffLine> rest;
  for (const JobLineDiff& one : diff.lines) {
    if (lines.size() < top) {
      Json line = bounded_json(one.line.figure, line_json(one.line));
      line["group"] = one.group;
      lines.push_back(std::move(line));
      continue;
    }
    DiffLine& sum = rest[one.line.cause];
    sum.cause = one.line.cause;
    sum.figure.a += one.line.figure.a;
    sum.figure.b += one.line.figure.b;
    sum.figure.variance += one.line.figure.variance;
    sum.figure.more_a += one.line.figure.more_a;
    sum.figure.more_b += one.line.figure.more_b;
  }
  for (const auto& [cause, line] : rest) {
    lines.push_back(bounded_json(line.figure, line_json(line)));
    lines.back()["group"] = nullptr;
  }
  return lines;
}

Json names_json(const std::vector<const NodeSum*>& nodes) {
  Json names = Json::array();
  for (const NodeSum* node : nodes) names.push_back(node->name);
  return names;
}

}  // namespace

std::string render_job_diff_json(const JobDiff& diff, std::size_t top) {
  Json json{{"schema", "whyrss.job-diff/1"},
            {"value", "at_peak"},
            {"a", side_json(*diff.a)},
            {"b", side_json(*diff.b)},
            {"rss", figure_json(diff.rss)},
            {"pss", diff.pss ? bounded_json(*diff.pss) : Json(nullptr)},
            {"once", figure_json(diff.once)},
            {"nodes_only_a", names_json(diff.only_a)},
            {"nodes_only_b", names_json(diff.only_b)}};
  json["outliers"] = Json::array();
  for (const OutlierDiff& outlier : diff.outliers) json["outliers"].push_back(outlier_json(diff, outlier));
  json["causes"] = Json::array();
  for (const DiffCause& cause : diff.causes)
    json["causes"].push_back(with_figure({{"cause", info(cause.cause).slug}}, cause.figure));
  json["groups"] = Json::array();
  for (const GroupDiff& group : diff.groups) json["groups"].push_back(group_json(group));
  json["lines"] = lines_json(diff, top);
  json["nodes"] = Json::array();
  for (std::size_t i = 0; i < std::min(diff.nodes.size(), top); ++i) json["nodes"].push_back(node_json(diff.nodes[i]));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace whyrss
