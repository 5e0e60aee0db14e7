#include "job/job_html.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "job/job_json.h"
#include "job/job_text.h"
#include "report/html/html_columns.h"
#include "report/html/html_page.h"
#include "report/render/gzip.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::size_t kHeadlines = 20;  // outliers and nodes among them

Json headlines_json(const JobView& job) {
  Json list = Json::array();
  for (const JobHeadline& headline : job_headlines(job, kHeadlines))
    list.push_back({{"severity", slug(headline.severity)}, {"text", headline.text}});
  return list;
}

// Of each group its causes that have anything, one run each; then what its processes have.
Json write_timeline(const JobTimeline& timeline, HtmlColumns& columns) {
  HtmlColumn& causes = columns.whole("time_causes");
  HtmlColumn& p50 = columns.whole("time_p50");
  HtmlColumn& p95 = columns.whole("time_p95");
  HtmlColumn& p99 = columns.whole("time_p99");
  HtmlColumn& max = columns.whole("time_max");
  HtmlColumn& processes = columns.whole("time_processes");
  Json groups = Json::array();
  for (const GroupTimeline& group : timeline.groups) {
    Json used = Json::array();
    for (std::size_t cause = 0; cause < kCauseCount; ++cause) {
      const auto has_any = [&](const TimelineStretch& stretch) { return stretch.causes[cause] != 0; };
      if (std::ranges::none_of(group.stretches, has_any)) continue;
      used.push_back(cause);
      causes.begin_run();
      for (const TimelineStretch& stretch : group.stretches) causes.add_delta(stretch.causes[cause]);
    }
    for (HtmlColumn* column : {&p50, &p95, &p99, &max, &processes}) column->begin_run();
    for (const TimelineStretch& stretch : group.stretches) {
      p50.add_delta(stretch.p50);
      p95.add_delta(stretch.p95);
      p99.add_delta(stretch.p99);
      max.add_delta(stretch.max);
      processes.add_delta(static_cast<std::int64_t>(stretch.process_count));
    }
    groups.push_back({{"group", group.group ? Json(*group.group) : Json(nullptr)}, {"causes", std::move(used)}});
  }
  return {{"stretches", kStretches}, {"stretch_s", timeline.stretch_s}, {"groups", std::move(groups)}};
}

// As report/html/html_data.h lays it out: the length of the header, the header, columns.
std::string packed(const JobView& job, const JobTimeline& timeline, const JobBounds& bounds) {
  HtmlColumns columns;
  Json document = job_document(job, bounds);
  for (Json& node : document["nodes"]) node.erase("boot_id");  // random, so that nothing makes them smaller
  std::size_t lines = 0;
  for (const JobGroup& group : job.groups) lines += group.lines.size() - std::min(group.lines.size(), bounds.lines);
  Json header{{"format", kFormat},
              {"kind", "job"},
              {"job", std::move(document)},
              {"head", head_text(job)},
              {"headlines", headlines_json(job)},
              {"missing", missing_from(job)},
              {"causes", html_causes()},
              {"left_out",
               {{"lines", lines},
                {"nodes", job.nodes.size() - std::min(job.nodes.size(), bounds.nodes)},
                {"files", job.files.size() - std::min(job.files.size(), bounds.files)}}},
              {"timeline", write_timeline(timeline, columns)}};
  header["columns"] = columns.rows();
  const std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string data = std::to_string(text.size()) + "\n" + text;
  columns.append_to(data);
  return gzipped(data, kPageLevel);
}

}  // namespace

void write_job_html(const JobView& job, const JobTimeline& timeline,
                    const std::function<void(std::string_view)>& write) {
  JobBounds bounds{.lines = 1000, .nodes = 20'000, .files = 1000};
  std::string data = packed(job, timeline, bounds);
  while (data.size() > kMostPacked && bounds.lines > 1) {
    bounds = {bounds.lines / 2, bounds.nodes / 2, bounds.files / 2};
    data = packed(job, timeline, bounds);
  }
  write_page(data, write);
}

}  // namespace whyrss
