// A processed profile of the Firefox Profiler (version 57 of its format, which later ones upgrade): a thread per
// process with its sites as samples weighted by bytes, the cause as outermost call and category, and RSS as a counter.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "export/export_format.h"
#include "report/view/blame.h"
#include "report/wording/format.h"
#include "support/text.h"
#include "support/version.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersionOfGecko = 31, kVersionOfFormat = 57;

constexpr std::array<std::string_view, kCauseCount> kColours{
    "grey",  "darkgrey", "brown",  "lightblue", "blue",   "grey",     "red",  "lightred",  "grey",
    "green", "orange",   "yellow", "magenta",   "purple", "darkgrey", "grey", "lightgreen"};

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

double milliseconds(double time_s) { return std::round(time_s * 1e6) / 1e3; }

Json category(std::string_view name, std::string_view colour) {
  return {{"name", name}, {"color", colour}, {"subcategories", Json::array({"Other"})}};
}

// The first is what has no cause.
std::size_t category_of(Cause cause) { return static_cast<std::size_t>(cause) + 1; }

class Strings {
 public:
  std::size_t operator()(const std::string& text) {
    const auto [known, is_new] = numbers_.try_emplace(text, all_.size());
    if (is_new) all_.push_back(text);
    return known->second;
  }
  [[nodiscard]] const Json& all() const { return all_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  Json all_ = Json::array();
};

// A table by columns, as the format has them; `add` takes one cell per column.
class Columns {
 public:
  explicit Columns(const std::vector<std::string>& names) : names_(names) {
    for (const std::string& name : names) table_[name] = Json::array();
  }
  std::size_t add(const std::vector<Json>& cells) {
    for (std::size_t i = 0; i < names_.size(); ++i) table_[names_[i]].push_back(cells[i]);
    return size_++;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] Json json() const {
    Json table = table_;
    table["length"] = size_;
    return table;
  }

 private:
  std::vector<std::string> names_;
  Json table_ = Json::object();
  std::size_t size_ = 0;
};

// One process.
class Thread {
 public:
  Thread(const StackTable& stacks, const ProcessView& process, Strings& strings)
      : stacks_(stacks), process_(process), strings_(strings) {}

  void add_sample(const ExportRow& row, std::int64_t bytes) {
    std::vector<ExportFrame> frames = plain_stack(stacks_, row);
    frames.insert(frames.begin(), {.function = slug_of(row.cause->cause), .file = {}});
    if (!row.site->mapping().empty()) frames.push_back({.function = printable(row.site->mapping()), .file = {}});
    Json stack = nullptr;
    for (const ExportFrame& frame : frames) stack = stack_number(stack, frame_number(frame, row.cause->cause));
    const double time_s = process_.at_last ? process_.at_last->time_s : process_.interval.to_s;
    samples_.add({stack, milliseconds(time_s), bytes});
  }

  void add_phases(const RecordingAccount& recording) {
    constexpr int kInstant = 0, kInterval = 1;
    const auto add = [&](const std::string& name, double from_s, const Json& to_ms, int phase) {
      const Json data{{"type", "phase"}, {"name", printable(name)}};
      markers_.add({0, data, to_ms, strings_(phase == kInterval ? "phase" : "mark"), phase, milliseconds(from_s)});
    };
    for (const Phase& phase : recording.phases) add(phase.name, phase.from_s, milliseconds(phase.to_s), kInterval);
    for (const Mark& mark : recording.marks) add(mark.name, mark.at_s, nullptr, kInstant);
  }

  [[nodiscard]] std::string text() const {
    const ProcessAccount& account = *process_.account;
    Json samples = samples_.json();
    samples["weightType"] = "bytes";
    const Json ended = account.ended_s ? Json(milliseconds(*account.ended_s)) : Json(nullptr);
    return dumped({{"processType", "default"},
                   {"processStartupTime", milliseconds(account.born_s)},
                   {"processShutdownTime", ended},
                   {"registerTime", milliseconds(account.born_s)},
                   {"unregisterTime", ended},
                   {"pausedRanges", Json::array()},
                   {"name", process_label(account)},
                   {"processName", process_label(account)},
                   {"isMainThread", true},
                   {"pid", fmt::format("{}", account.pid)},
                   {"tid", account.pid},
                   {"samples", std::move(samples)},
                   {"markers", markers_.json()},
                   {"stackTable", stack_table_.json()},
                   {"frameTable", frame_table_.json()},
                   {"funcTable", functions_.json()},
                   {"resourceTable", Columns({"lib", "name", "host", "type"}).json()},
                   {"nativeSymbols", Columns({"libIndex", "address", "name", "functionSize"}).json()}});
  }

 private:
  std::size_t function_number(const ExportFrame& frame) {
    const auto [known, is_new] = function_numbers_.try_emplace({frame.function, frame.file}, functions_.size());
    if (!is_new) return known->second;
    const Json file = frame.file.empty() ? Json(nullptr) : Json(strings_(frame.file));
    return functions_.add({strings_(frame.function), false, false, -1, file, nullptr, nullptr});
  }

  std::size_t frame_number(const ExportFrame& frame, Cause cause) {
    const std::size_t function = function_number(frame);
    const auto [known, is_new] = frame_numbers_.try_emplace({function, frame.line, cause}, frame_table_.size());
    if (!is_new) return known->second;
    const Json line = frame.line > 0 ? Json(frame.line) : Json(nullptr);
    return frame_table_.add({-1, 0, category_of(cause), 0, function, nullptr, nullptr, line, nullptr});
  }

  std::size_t stack_number(const Json& prefix, std::size_t frame) {
    const std::int64_t parent = prefix.is_null() ? -1 : prefix.get<std::int64_t>();
    const auto [known, is_new] = stack_numbers_.try_emplace({parent, frame}, stack_table_.size());
    return is_new ? stack_table_.add({frame, prefix}) : known->second;
  }

  const StackTable& stacks_;
  const ProcessView& process_;
  Strings& strings_;
  Columns samples_{{"stack", "time", "weight"}};
  Columns markers_{{"category", "data", "endTime", "name", "phase", "startTime"}};
  Columns stack_table_{{"frame", "prefix"}};
  Columns frame_table_{
      {"address", "inlineDepth", "category", "subcategory", "func", "nativeSymbol", "innerWindowID", "line", "column"}};
  Columns functions_{{"name", "isJS", "relevantForJS", "resource", "fileName", "lineNumber", "columnNumber"}};
  std::map<std::pair<std::string, std::string>, std::size_t> function_numbers_;
  std::map<std::tuple<std::size_t, int, Cause>, std::size_t> frame_numbers_;
  std::map<std::pair<std::int64_t, std::size_t>, std::size_t> stack_numbers_;
};

Json meta_json(const View& view) {
  const RecordingInfo& info = view.recording->info;
  Json categories = Json::array({category("Other", "grey")});
  for (const CauseInfo& cause : kCauses)
    categories.push_back(category(cause.slug, kColours.at(static_cast<std::size_t>(cause.cause))));
  const Json schema{{"name", "phase"},
                    {"display", Json::array({"marker-chart", "marker-table", "timeline-overview"})},
                    {"tooltipLabel", "{marker.data.name}"},
                    {"chartLabel", "{marker.data.name}"},
                    {"tableLabel", "{marker.data.name}"},
                    {"fields", Json::array({{{"key", "name"}, {"label", "Name"}, {"format", "string"}}})}};
  return {{"version", kVersionOfGecko},
          {"preprocessedProfileVersion", kVersionOfFormat},
          {"product", fmt::format("whyrss {}", kVersion)},
          {"interval", 1},
          {"startTime", static_cast<double>(started_ns(info)) / 1e6},
          {"processType", 0},
          {"stackwalk", 1},
          {"debug", false},
          {"symbolicated", true},
          {"arguments", printable(join(info.command, " "))},
          {"categories", std::move(categories)},
          {"markerSchema", Json::array({schema})}};
}

// RSS by changes, as the profiler sums them up.
Json counter_json(const ProcessView& process, std::size_t thread) {
  Columns samples({"time", "count"});
  std::int64_t before = 0;
  for (const CauseMoment& moment : cause_moments(process)) {
    samples.add({milliseconds(moment.time_s), moment.rss_bytes - before});
    before = moment.rss_bytes;
  }
  return {{"name", "RSS"},
          {"category", "Memory"},
          {"description", "resident memory at each snapshot"},
          {"pid", fmt::format("{}", process.account->pid)},
          {"mainThreadIndex", thread},
          {"samples", samples.json()}};
}

}  // namespace

std::vector<std::string> write_firefox(const ExportRequest& request, const ByteSink& write) {
  const View& view = *request.view;
  Strings strings;
  Shrunk shrunk;
  Json counters = Json::array();
  write("{\"meta\":" + dumped(meta_json(view)) + ",\n\"libs\":[],\n\"threads\":[");
  std::size_t number = 0;
  for (const ProcessView& process : view.processes) {
    Thread thread(view.recording->stacks, process, strings);
    for (const CauseView& cause : process.causes)
      for (const SiteView& site : cause.sites) {
        const ExportRow row{&process, &cause, &site};
        const std::int64_t bytes = row.value(request.value);
        if (bytes > 0) thread.add_sample(row, bytes);
        if (bytes < 0) shrunk.add(bytes);
      }
    if (number == 0) thread.add_phases(*view.recording);
    if (process.walked) counters.push_back(counter_json(process, number));
    write((number++ == 0 ? "\n" : ",\n") + thread.text());
  }
  write("\n],\n\"counters\":" + dumped(counters) + ",\n\"shared\":" + dumped({{"stringArray", strings.all()}}) + "}\n");
  return shrunk.remarks();
}

}  // namespace whyrss
