#include "report/render/json.h"

#include <algorithm>

#include "model/library_allocator.h"
#include "report/render/accounting_text.h"
#include "report/render/allocator_figures.h"
#include "report/render/cgroup_json.h"
#include "report/render/pages_json.h"
#include "report/render/site_json.h"
#include "report/verdicts/unsplit_rule.h"
#include "report/wording/optional_json.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

Json figure_json(const Figure& figure, bool known) {
  if (!known) return {{"first", nullptr}, {"last", nullptr}, {"peak", nullptr}};
  return {{"first", figure.first}, {"last", figure.last}, {"peak", figure.peak}};
}

Json figure_json(const ReadFigure& figure) {
  return {{"first", optional_json(figure.first)},
          {"last", optional_json(figure.last)},
          {"peak", optional_json(figure.peak)},
          {"estimate", figure.estimate()}};
}

// Recordings hold capabilities as text; the contract wants their real types.
Json capability_json(const std::string& value) {
  if (value == "true" || value == "yes") return true;
  if (value == "false" || value == "no") return false;
  if (value.empty() || value == "null") return nullptr;
  return value;
}

std::string major_minor(const std::string& version) {
  const std::size_t first = version.find('.');
  const std::size_t second = first == std::string::npos ? first : version.find('.', first + 1);
  return version.substr(0, second);
}

Json capabilities_json(const RecordingAccount& recording) {
  Json result{{"touch", "none"}, {"write_tracking", false}, {"python", nullptr}};
  for (const ProcessAccount& process : recording.processes) {
    if (!process.python) continue;
    result["python"] = major_minor(*process.python);
    break;
  }
  for (const auto& [name, value] : recording.info.capabilities) result[name] = capability_json(value);
  // Recordings say why not, where they can: here a yes or no is promised, the reason goes beside it.
  if (result["write_tracking"].is_string()) {
    result["write_tracking_why"] = result["write_tracking"];
    result["write_tracking"] = false;
  }
  return result;
}

// Of all processes that were walked and have ended.
bool are_ends_seen(const RecordingAccount& recording) {
  return std::ranges::all_of(recording.processes,
                             [](const ProcessAccount& process) { return process.unseen_s.value_or(0) == 0; });
}

Json left_json(const RecordingInfo& info) {
  if (!info.left_files) return nullptr;
  return {{"files", info.left_files->count}, {"bytes", info.left_files->bytes}, {"largest", info.left_files->largest}};
}

Json recording_json(const RecordingAccount& recording) {
  const RecordingInfo& info = recording.info;
  Json why = info.complete ? Json(nullptr) : Json(info.incomplete_why);
  return {{"path", info.path},
          {"host", info.host},
          {"command", info.command},
          {"started", info.started},
          {"duration_s", info.duration_s},
          {"mode", info.mode},
          {"complete", info.complete},
          {"ends_seen", are_ends_seen(recording)},
          {"incomplete_why", std::move(why)},
          {"exit",
           {{"code", optional_json(info.exit_code)},
            {"signal", optional_json(info.exit_signal)},
            {"oom_killed", info.oom_killed}}},
          {"lost", {{"events", info.lost_events}, {"snapshots", info.lost_snapshots}, {"notes", info.notes}}},
          {"collector",
           {{"cpu_s", info.collector_cpu_s},
            {"share", info.duration_s > 0 ? info.collector_cpu_s / info.duration_s : 0},
            {"overhead_percent", optional_json(info.overhead_percent)}}},
          {"left_shared_memory", left_json(info)},
          {"capabilities", capabilities_json(recording)}};
}

Json cause_json(StackJson& stacks, const CauseView& cause, const SiteStyle& style) {
  // PSS per cause needs per-mapping readings, which recordings do not hold yet.
  Json growth{{"rss", cause.rss.growth()}, {"pss", nullptr}, {"uss", cause.uss_growth}};
  Json result{
      {"cause", info(cause.cause).slug},
      {"rss",
       {{"first", cause.rss.first}, {"last", cause.rss.last}, {"peak", cause.rss.peak}, {"at_peak", cause.at_peak}}},
      {"growth", std::move(growth)},
      {"estimate", cause.estimate},
      {"standard_error", rounded_error(cause.variance)},
      {"sites", sites_json(stacks, cause, style)}};
  if (cause.sole_owner) result["sole_owner_bytes"] = *cause.sole_owner;
  return result;
}

Json cow_json(StackJson& stacks, const ProcessView& process, const SiteStyle& style) {
  return {{"copied", process.copied},
          {"copied_doubtful", process.doubtful_copies},
          {"copied_by_relatives", process.copied_by_relatives},
          {"reused", process.reused},
          {"left_by_relatives", process.left_by_relatives},
          {"method", process.account->write_tracked ? "write_tracking" : "exclusive_bits"},
          {"estimate", process.copies_estimate},
          {"sites", cow_sites_json(stacks, process.cow_sites, style)}};
}

Json touch_json(const ProcessAccount& account) {
  const TouchFigures& touch = account.touch;
  const std::string reason = touch.off_reason.empty() ? "not traced" : touch.off_reason;
  const bool compared = touch.samples > 0 && touch.all_faults > 0;
  const std::uint64_t unsampled = touch.all_faults - std::min(touch.all_faults, touch.sampled_of_all);
  const double share = compared ? static_cast<double>(unsampled) / static_cast<double>(touch.all_faults) : 0;
  return {{"samples", touch.samples},
          {"faults", touch.faults},
          {"missed", touch.missed},
          {"kernel_faults", compared ? Json(unsampled) : Json(nullptr)},
          {"kernel_share", compared ? Json(share) : Json(nullptr)},
          {"kernel_faults_by_line", touch.counted_kernel_faults},
          {"off_reason", touch.armed && touch.off_reason.empty() ? Json(nullptr) : Json(reason)}};
}

Json allocator_stats_json(const AllocatorStats& stats) {
  const AllocatorFigure figure = allocator_figure(stats);
  return {{"time_s", stats.time_s},
          {"allocated", optional_json(figure.allocated)},
          {"counted", optional_json(stats.counted_bytes)},
          {"counted_blocks", optional_json(stats.counted_blocks)},
          {"difference", optional_json(figure.difference)},
          {"values", stats.values}};
}

Json allocator_stats_json(const ProcessAccount& account) {
  if (account.allocator_stats.empty()) return nullptr;
  Json result{{"difference", nullptr}, {"start", nullptr}, {"peak", nullptr}, {"end", nullptr}};
  result["snapshots"] = Json::array();
  for (const AllocatorStats& stats : account.allocator_stats) {  // of several peaks the last is the highest
    if (stats.moment == "snapshot")
      result["snapshots"].push_back(allocator_stats_json(stats));
    else
      result[stats.moment] = allocator_stats_json(stats);
  }
  if (const AllocatorStats* fullest = fullest_allocator_stats(account); fullest != nullptr)
    result["difference"] = optional_json(allocator_figure(*fullest).difference);
  return result;
}

Json pymalloc_json(const ProcessView& process) {
  const PymallocBytes& bytes = process.pymalloc;
  return {{"live", bytes.live}, {"slack", bytes.slack}, {"retained", bytes.retained}};
}

Json moment_json(const std::optional<StateMoment>& moment) {
  if (!moment) return nullptr;
  return {{"time_s", moment->time_s}, {"looked_s", moment->walked_s}, {"estimate", moment->is_estimate()}};
}

// The one that serves malloc, and those inside libraries: null where nothing of theirs was followed.
Json allocators_json(const StackTable& stacks, const ProcessView& process) {
  Json malloc{{"name", "malloc"},
              {"kind", process.account->allocator.empty() ? "other" : process.account->allocator},
              {"version", nullptr},
              {"library", nullptr}};
  std::vector<Json> others;
  for (const auto& [name, cause] :
       {std::pair{"live", Cause::heap_live}, std::pair{"slack", Cause::heap_slack},
        std::pair{"retained", Cause::heap_retained}, std::pair{"metadata", Cause::heap_metadata},
        std::pair{"unsplit", Cause::heap_unsplit}}) {
    const CauseView* found = process.find(cause);
    std::int64_t of_malloc = found == nullptr || cause == Cause::heap_unsplit ? 0 : found->rss.last;
    for (const AllocatorBytes& allocator :
         found == nullptr ? std::vector<AllocatorBytes>{} : by_allocator(stacks, cause, found->sites)) {
      if (cause != Cause::heap_unsplit) of_malloc -= allocator.resident;
      auto row = std::ranges::find_if(others, [&](const Json& other) {
        return other["library"] == allocator.library && other["kind"] == allocator.kind;
      });
      if (row == others.end()) {
        others.push_back(Json::object({{"name", allocator.name},
                                       {"kind", allocator.kind},
                                       {"version", nullptr},
                                       {"library", allocator.library},
                                       {"live", nullptr},
                                       {"slack", nullptr},
                                       {"retained", nullptr},
                                       {"metadata", nullptr},
                                       {"unsplit", 0}}));
        row = std::prev(others.end());
      }
      (*row)[name] = allocator.resident;
    }
    malloc[name] = of_malloc;
  }
  Json list = Json::array({std::move(malloc)});
  for (Json& other : others) {
    const auto known = {"live", "slack", "retained"};
    if (std::ranges::any_of(known, [&](const char* name) { return !other[name].is_null(); }))
      for (const char* name : known)
        if (other[name].is_null()) other[name] = 0;
    list.push_back(std::move(other));
  }
  return list;
}

Json process_json(StackJson& stacks, const ProcessView& process, const SiteStyle& style) {
  const ProcessAccount& account = *process.account;
  Json rss = figure_json(process.rss, process.walked);
  rss["high_water"] = account.high_water_bytes > 0 ? Json(account.high_water_bytes) : Json(nullptr);
  rss["high_water_at_least"] = account.high_water_at_least;
  Json causes = Json::array();
  for (const CauseView& cause : process.causes) causes.push_back(cause_json(stacks, cause, style));
  return {{"pid", account.pid},
          {"parent", optional_json(account.parent)},
          {"born", account.born_by_fork ? "fork" : "exec"},
          {"born_s", account.born_s},
          {"ended_s", optional_json(account.ended_s)},
          {"teardown_s", optional_json(account.teardown_s)},
          {"unseen_s", optional_json(account.unseen_s)},
          {"traced", account.traced ? "full" : "kernel"},
          {"command", account.command},
          {"exe", account.exe},
          {"allocator", account.allocator.empty() ? "other" : account.allocator},
          {"python", optional_json(account.python)},
          {"moments",
           {{"first", moment_json(process.at_first)},
            {"last", moment_json(process.at_last)},
            {"peak", moment_json(process.at_peak)}}},
          {"rss", std::move(rss)},
          {"pss", figure_json(process.pss)},
          {"uss", figure_json(process.uss, process.walked)},
          {"outside_rss",
           {{"swap", optional_json(process.swap)},
            {"hugetlb", optional_json(process.hugetlb)},
            {"device", nullptr},
            {"shmem_unmapped", optional_json(process.unmapped.last)},
            {"page_tables", optional_json(process.page_tables)}}},
          {"causes", std::move(causes)},
          {"allocators", allocators_json(stacks.table(), process)},
          {"pymalloc", pymalloc_json(process)},
          {"cow", cow_json(stacks, process, style)},
          {"touch", touch_json(account)},
          {"allocator_stats", allocator_stats_json(account)},
          {"lost_events", account.lost_events},
          {"notes", account.notes},
          {"counters", account.counters}};
}

Json verdict_json(const Verdict& verdict) {
  return {{"id", verdict.id},         {"severity", slug(verdict.severity)}, {"pid", optional_json(verdict.pid)},
          {"bytes", verdict.bytes},   {"headline", verdict.headline},       {"why", verdict.why},
          {"advice", verdict.advice}, {"evidence", verdict.evidence}};
}

constexpr int kJsonIndent = 2, kOnOneLine = -1;

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void write_json(const View& view, const std::vector<Verdict>& verdicts, const JsonStyle& style,
                const std::function<void(std::string_view)>& write) {
  const RecordingAccount& recording = *view.recording;
  StackJson stacks(recording.stacks, style.schema);
  Json report{{"schema", style.schema == JsonSchema::v1 ? "whyrss.report/1" : "whyrss.report/2"},
              {"recording", recording_json(recording)},
              {"interval", {{"from_s", view.interval.from_s}, {"to_s", view.interval.to_s}}},
              {"family",
               {{"pss", figure_json(view.family.pss)},
                {"rss_sum", figure_json(view.family.rss_sum, true)},
                {"shmem_unmapped", figure_json(view.family.unmapped)},
                {"accounting", accounting_json(view)},
                {"cgroup", cgroup_json(recording.info)}}}};
  const std::string before = text_of(report, kJsonIndent);
  report = Json::object();
  report["phases"] = Json::array();
  for (const Phase& phase : recording.phases)
    report["phases"].push_back(
        {{"name", phase.name}, {"from_s", phase.from_s}, {"to_s", phase.to_s}, {"pid", phase.pid}});
  report["marks"] = Json::array();
  for (const Mark& mark : recording.marks) report["marks"].push_back({{"name", mark.name}, {"at_s", mark.at_s}});
  report["verdicts"] = Json::array();
  for (const Verdict& verdict : verdicts) report["verdicts"].push_back(verdict_json(verdict));
  const std::string after = text_of(report, kJsonIndent);

  constexpr std::string_view kEnd = "\n}";  // of an object
  write(std::string_view(before).substr(0, before.size() - kEnd.size()));
  write(",\n  \"processes\": [");
  for (const ProcessView& process : view.processes) {
    write(&process == view.processes.data() ? "\n    " : ",\n    ");
    Json json = process_json(stacks, process, style.sites);
    if (style.pages) json["pages"] = pages_json(stacks, process);
    write(text_of(json, kOnOneLine));
  }
  write(view.processes.empty() ? "],\n" : "\n  ],\n");
  stacks.write_table(write);
  write(std::string_view(after).substr(2));
  write("\n");
}

std::string render_json(const View& view, const std::vector<Verdict>& verdicts, const JsonStyle& style) {
  std::string text;
  write_json(view, verdicts, style, [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace whyrss
