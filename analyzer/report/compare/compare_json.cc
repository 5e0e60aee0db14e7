#include <cmath>
#include <nlohmann/json.hpp>

#include "report/compare/compare_formats.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value, bool whole) { return whole ? Json(std::llround(value)) : Json(value); }

// Null: no run of that kind.
Json spread_json(const Spread& spread, bool whole) {
  if (spread.values.empty()) return nullptr;
  Json runs = Json::array();
  for (const double value : spread.values) runs.push_back(number(value, whole));
  return {{"median", number(spread.median, whole)},
          {"least", number(spread.least, whole)},
          {"most", number(spread.most, whole)},
          {"runs", std::move(runs)}};
}

Json heap_json(const Spread& live, const Spread& slack, const Spread& retained, const Spread& unsplit, bool has_parts) {
  return {{"live", spread_json(live, true)},
          {"slack", has_parts ? spread_json(slack, true) : Json(nullptr)},
          {"retained", has_parts ? spread_json(retained, true) : Json(nullptr)},
          {"unsplit", spread_json(unsplit, true)}};
}

Json trim_json(const std::optional<TrimEffect>& trim) {
  if (!trim) return nullptr;
  return {{"rss", {{"before", trim->rss_before}, {"after", trim->rss_after}}},
          {"retained", {{"before", trim->retained_before}, {"after", trim->retained_after}}}};
}

Json lines_json(const Contestant& who) {
  Json lines = Json::array();
  for (const PinningLine& line : who.pinning_lines)
    lines.push_back({{"cause", info(line.cause).slug}, {"bytes", line.bytes}, {"line", line.line}});
  return {{"at", who.pins_at_end ? "end" : "peak"}, {"lines", std::move(lines)}};
}

Json contestant_json(const Contestant& who) {
  const ContestantFigures figures = figures_of(who);
  return {{"label", who.label},
          {"allocator", who.family},
          {"version", who.version},
          {"library", who.library.empty() ? Json(nullptr) : Json(who.library)},
          {"settings", who.settings},
          {"failures", figures.ends},
          {"bare",
           {{"peak_rss", spread_json(figures.peak_rss, true)},
            {"page_faults", spread_json(figures.page_faults, true)},
            {"cpu_s", spread_json(figures.cpu_s, false)},
            {"wall_s", spread_json(figures.wall_s, false)}}},
          {"recorded",
           {{"peak_rss", spread_json(figures.recorded_peak_rss, true)},
            {"final_rss", spread_json(figures.final_rss, true)},
            {"rss_byte_seconds", spread_json(figures.rss_byte_seconds, true)},
            {"at_peak", heap_json(figures.live_at_peak, figures.slack_at_peak, figures.retained_at_peak,
                                  figures.unsplit_at_peak, figures.has_parts)},
            {"at_end", heap_json(figures.live_at_end, figures.slack_at_end, figures.retained_at_end,
                                 figures.unsplit_at_end, figures.has_parts)}}},
          {"pinning", lines_json(who)},
          {"malloc_trim", trim_json(who.trim)}};
}

}  // namespace

std::string render_compare_json(const Comparison& comparison) {
  Json result{{"schema", "whyrss.compare/1"}, {"command", comparison.command}, {"conclusion", conclusion(comparison)}};
  result["contestants"] = Json::array();
  for (const Contestant& who : comparison.contestants) result["contestants"].push_back(contestant_json(who));
  result["notes"] = comparison.notes;
  return result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace whyrss
