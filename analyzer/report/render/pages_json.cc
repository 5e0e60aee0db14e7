#include "report/render/pages_json.h"

#include <algorithm>

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

// As in /proc/PID/maps.
std::string permissions(const PageMapMapping& mapping) {
  return {mapping.readable ? 'r' : '-', mapping.writable ? 'w' : '-', mapping.executable ? 'x' : '-',
          mapping.shared ? 's' : 'p'};
}

Json mapping_json(StackJson& stacks, const PageMapMapping& mapping) {
  const auto page_of = [&](std::uint64_t address) { return (address - mapping.start) / kPictureCellBytes; };
  Json at = Json::array(), span = Json::array(), resident = Json::array(), cause = Json::array(), stack = Json::array(),
       live = Json::array();
  for (const PageMapRun& run : mapping.runs) {
    at.push_back(page_of(run.start));
    span.push_back((run.end - run.start) / kPictureCellBytes);
    resident.push_back(run.pages);
    cause.push_back(info(run.cause).slug);
    stack.push_back(stacks.number_of(run.stack));
    live.push_back(run.live_sixteenths);
  }
  Json age_at = Json::array(), age_span = Json::array(), since = Json::array();
  for (const PageAge& age : mapping.ages) {
    age_at.push_back(page_of(age.start));
    age_span.push_back((age.end - age.start) / kPictureCellBytes);
    since.push_back(age.since_s);
  }
  return {{"start", mapping.start},
          {"end", mapping.end},
          {"mapping", mapping.path.empty() ? Json(nullptr) : Json(mapping.path)},
          {"permissions", permissions(mapping)},
          {"file_offset", mapping.file_offset},
          {"cell_pages", mapping.cell_bytes / kPictureCellBytes},
          {"runs",
           {{"page", std::move(at)},
            {"pages", std::move(span)},
            {"resident_pages", std::move(resident)},
            {"cause", std::move(cause)},
            {"stack", std::move(stack)},
            {"live_sixteenths", std::move(live)}}},
          {"ages", {{"page", std::move(age_at)}, {"pages", std::move(age_span)}, {"since_s", std::move(since)}}}};
}

}  // namespace

Json pages_json(StackJson& stacks, const ProcessView& process) {
  std::size_t snapshots = 0;
  Json pictures = Json::array();
  for (const Account& account : process.account->accounts) {
    if (account.estimated_from_s || account.time_s < process.interval.from_s || account.time_s > process.interval.to_s)
      continue;
    ++snapshots;
    if (account.picture == nullptr) continue;
    Json mappings = Json::array();
    for (const PageMapMapping& mapping : account.picture->mappings) mappings.push_back(mapping_json(stacks, mapping));
    pictures.push_back({{"time_s", account.time_s},
                        {"rss", account.rss_bytes},
                        {"mappings_left_out", account.picture->mappings_left_out},
                        {"pages_left_out", account.picture->pages_left_out},
                        {"mappings", std::move(mappings)}});
  }
  return {{"page_bytes", kPictureCellBytes}, {"snapshots", snapshots}, {"pictures", std::move(pictures)}};
}

}  // namespace whyrss
