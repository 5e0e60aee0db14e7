#include "report/diff/diff_json.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "report/diff/diff_formats.h"

namespace whyrss {

using Json = nlohmann::ordered_json;

Json figure_json(const DiffFigure& figure) {
  const std::optional<double> percent = figure.percent();
  return {{"a", figure.a},
          {"b", figure.b},
          {"change", figure.change()},
          {"percent", percent ? Json(*percent) : Json(nullptr)},
          {"standard_error", std::llround(std::sqrt(figure.variance))},
          {"state", slug_of(figure.state())}};
}

Json with_figure(Json json, const DiffFigure& figure) {
  json.update(figure_json(figure));
  return json;
}

Json line_json(const DiffLine& line) {
  const auto number = [](int value) { return value > 0 ? Json(value) : Json(nullptr); };
  return with_figure({{"cause", info(line.cause).slug},
                      {"line", line.line},
                      {"function", line.function},
                      {"file", line.file},
                      {"line_a", number(line.line_a)},
                      {"line_b", number(line.line_b)}},
                     line.figure);
}

namespace {

Json side_json(const std::string& name, const View& view) {
  const RecordingInfo& recorded = view.recording->info;
  Json pids = Json::array();
  for (const ProcessView& process : view.processes) pids.push_back(process.account->pid);
  return {{"name", name},
          {"path", recorded.path},
          {"host", recorded.host},
          {"command", recorded.command},
          {"started", recorded.started},
          {"mode", recorded.mode},
          {"complete", recorded.complete},
          {"lost_events", recorded.lost_events},
          {"interval", {{"from_s", view.interval.from_s}, {"to_s", view.interval.to_s}}},
          {"pids", std::move(pids)},
          {"process_count", count_there(view)},
          {"read", is_read(view)}};
}

Json lines_json(const Diff& diff, std::size_t top) {
  Json lines = Json::array();
  std::map<Cause, DiffLine> rest;
  for (const DiffLine& line : diff.lines) {
    if (lines.size() < top) {
      lines.push_back(line_json(line));
      continue;
    }
    DiffLine& sum = rest[line.cause];
    sum.cause = line.cause;
    sum.figure.a += line.figure.a;
    sum.figure.b += line.figure.b;
    sum.figure.variance += line.figure.variance;
  }
  for (const auto& [cause, line] : rest) lines.push_back(line_json(line));
  return lines;
}

std::string figure_slug(SiteFigure which) {
  if (which == SiteFigure::growth) return "growth";
  return which == SiteFigure::at_peak ? "at_peak" : "resident";
}

}  // namespace

std::string render_diff_json(const Diff& diff, const DiffStyle& style) {
  Json causes = Json::array();
  for (const DiffCause& cause : diff.causes)
    causes.push_back(with_figure({{"cause", info(cause.cause).slug}}, cause.figure));
  const Json json{{"schema", "whyrss.diff/1"},
                  {"value", figure_slug(diff.which)},
                  {"a", side_json(style.name_a, *diff.a)},
                  {"b", side_json(style.name_b, *diff.b)},
                  {"rss", figure_json(diff.rss)},
                  {"peak_rss", figure_json(diff.peak_rss)},
                  {"peak_pss", diff.peak_pss ? figure_json(*diff.peak_pss) : Json(nullptr)},
                  {"causes", std::move(causes)},
                  {"lines", lines_json(diff, style.top)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace whyrss
