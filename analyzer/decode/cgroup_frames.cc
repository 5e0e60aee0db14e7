#include "decode/cgroup_frames.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "decode/json_values.h"

namespace whyrss {
namespace {

using Member = std::optional<std::int64_t> CgroupReading::*;

constexpr std::array<std::pair<const char*, Member>, 15> kFigures{{
    {"usage_bytes", &CgroupReading::usage_bytes},
    {"peak_bytes", &CgroupReading::peak_bytes},
    {"anon_bytes", &CgroupReading::anon_bytes},
    {"shmem_bytes", &CgroupReading::shmem_bytes},
    {"file_bytes", &CgroupReading::file_bytes},
    {"kernel_bytes", &CgroupReading::kernel_bytes},
    {"mapped_file_bytes", &CgroupReading::mapped_file_bytes},
    {"dirty_bytes", &CgroupReading::dirty_bytes},
    {"swap_bytes", &CgroupReading::swap_bytes},
    {"limit_hits", &CgroupReading::limit_hits},
    {"high_hits", &CgroupReading::high_hits},
    {"reclaimed_bytes", &CgroupReading::reclaimed_bytes},
    {"refaulted_bytes", &CgroupReading::refaulted_bytes},
    {"oom_kills", &CgroupReading::oom_kills},
    {"group_kills", &CgroupReading::group_kills},
}};

}  // namespace

void read_cgroup_frame(const nlohmann::json& object, double time_s, std::optional<CgroupAccount>& group) {
  if (!group) group.emplace();
  if (const auto version = json_integer(object, "version"); version && (*version == 1 || *version == 2))
    group->version = static_cast<int>(*version);
  if (const std::string path = json_text(object, "path"); !path.empty()) group->path = path;
  if (const auto limit = json_integer(object, "limit_bytes"); limit && *limit >= 0) group->limit_bytes = limit;
  if (const auto high = json_integer(object, "high_bytes"); high && *high >= 0) group->high_bytes = high;
  group->made_by_record = group->made_by_record || json_true(object, "made_by_record");
  group->kills_all = group->kills_all || json_true(object, "kills_all");
  CgroupReading reading;
  reading.time_s = time_s;
  reading.after_end = json_true(object, "after_end");
  for (const auto& [name, member] : kFigures)
    if (const auto value = json_integer(object, name); value && *value >= 0) reading.*member = value;
  for (const auto& value : {reading.peak_bytes, reading.usage_bytes})
    if (value) group->peak_bytes = std::max(group->peak_bytes.value_or(0), *value);
  group->readings.push_back(reading);
}

void merge_cgroup(CgroupAccount&& more, std::optional<CgroupAccount>& group) {
  if (!group) {
    group = std::move(more);
    return;
  }
  if (group->path != more.path) {
    if (more.limit_bytes && (!group->limit_bytes || *more.limit_bytes < *group->limit_bytes)) group = std::move(more);
    return;
  }
  group->made_by_record = group->made_by_record || more.made_by_record;
  if (more.peak_bytes) group->peak_bytes = std::max(group->peak_bytes.value_or(0), *more.peak_bytes);
  group->readings.insert(group->readings.end(), more.readings.begin(), more.readings.end());
  std::ranges::stable_sort(group->readings, {}, &CgroupReading::time_s);
}

void settle_peak(CgroupAccount& group) {
  std::optional<std::int64_t> first, largest_use;
  bool rose = false;
  for (const CgroupReading& reading : group.readings) {
    if (reading.usage_bytes) largest_use = std::max(largest_use.value_or(0), *reading.usage_bytes);
    rose = rose || (first && reading.peak_bytes && *reading.peak_bytes > *first);
    if (!first) first = reading.peak_bytes;
  }
  if (!rose && largest_use && !group.made_by_record && group.readings.size() > 1) group.peak_bytes = largest_use;
}

}  // namespace whyrss
