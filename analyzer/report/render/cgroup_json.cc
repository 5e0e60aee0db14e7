#include "report/render/cgroup_json.h"

#include "report/view/limit_effect.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

// A day has 86,400 readings: of more than these only every other, every third ... is listed.
constexpr std::size_t kMostReadings = 500;

Json number(const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); }

Json reading_json(const CgroupReading& reading) {
  return {{"time_s", reading.time_s},
          {"usage", number(reading.usage_bytes)},
          {"anon", number(reading.anon_bytes)},
          {"shmem", number(reading.shmem_bytes)},
          {"file", number(reading.file_bytes)},
          {"mapped_file", number(reading.mapped_file_bytes)},
          {"dirty", number(reading.dirty_bytes)},
          {"kernel", number(reading.kernel_bytes)},
          {"swap", number(reading.swap_bytes)}};
}

}  // namespace

Json cgroup_json(const RecordingInfo& recording) {
  if (!recording.cgroup) return {{"limit", nullptr}, {"usage_peak", nullptr}, {"readings", Json::array()}};
  const CgroupAccount& group = *recording.cgroup;
  Json json{
      {"limit", number(group.limit_bytes)}, {"usage_peak", number(group.peak_bytes)}, {"readings", Json::array()}};
  if (group.version == 0) return json;  // all that old recordings tell
  const LimitEffect effect = limit_effect(group);
  json["version"] = group.version;
  json["path"] = group.path;
  json["made_by_record"] = group.made_by_record;
  json["kills_all"] = group.kills_all;
  json["high"] = number(group.high_bytes);
  json["limit_hits"] = number(effect.limit_hits);
  json["reclaimed"] = number(effect.reclaimed_bytes);
  json["reclaimed_at_least"] = effect.reclaimed_at_least;
  json["refaulted"] = number(effect.refaulted_bytes);
  json["oom_kills"] = number(effect.oom_kills);
  json["fullest"] = effect.fullest == nullptr ? Json(nullptr) : reading_json(*effect.fullest);
  const std::size_t stride = group.readings.size() / kMostReadings + 1;
  for (std::size_t i = 0; i < group.readings.size(); i += stride)
    json["readings"].push_back(reading_json(group.readings[i]));
  return json;
}

}  // namespace whyrss
