#include "report/verdicts/last_minute.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "report/verdicts/lazy_free_rule.h"
#include "report/view/build_view.h"
#include "report/view/series.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr double kMinuteS = 60;
// By so much the group's clock and that of an end may differ.
constexpr double kApartS = 1;
constexpr std::size_t kGrownNamed = 3;
constexpr std::string_view kOfAll = ", all programs in it together";

// The last reading before an end, or, of those so close to it that they may be from before or after it, the fullest.
const CgroupReading* fullest_before(const CgroupAccount& group, double end_s) {
  const auto held = [](const CgroupReading& reading) { return *reading.anon_bytes + reading.shmem_bytes.value_or(0); };
  const CgroupReading* found = nullptr;
  for (const CgroupReading& reading : group.readings) {
    if (reading.after_end || !reading.anon_bytes || reading.time_s > end_s + kApartS) continue;
    if (found == nullptr || found->time_s < end_s - kApartS || held(reading) >= held(*found)) found = &reading;
  }
  return found;
}

// What a group has of shared memory and no process maps is in files that no process maps: these are read less often
// than the group.
void raise_unmapped(std::int64_t group_bytes, std::vector<Holder>& held) {
  std::int64_t mapped_bytes = 0;
  for (const Holder& holder : held)
    if (holder.cause == Cause::shared_memory && !holder.unmapped) mapped_bytes += holder.bytes;
  const std::int64_t bytes = group_bytes - mapped_bytes;
  auto unmapped = std::ranges::find(held, true, &Holder::unmapped);
  if (unmapped == held.end() && bytes >= kNamedGrowthBytes)
    unmapped = held.insert(held.end(),
                           {.cause = Cause::shared_memory, .line = "in no snapshot of a process", .unmapped = true});
  if (unmapped == held.end() || bytes <= unmapped->bytes) return;
  unmapped->bytes = bytes;
  std::ranges::stable_sort(held, std::greater{}, &Holder::bytes);
}

}  // namespace

LastMinute last_minute(const View& view, double end_s, double seen_s, const CgroupReading* at_kill) {
  LastMinute minute;
  minute.from_s = std::max(0.0, end_s - kMinuteS);
  minute.to_s = std::max(0.0, std::clamp(seen_s, end_s, end_s + kApartS));
  const View then = build_processes(*view.recording, {.from_s = minute.from_s, .to_s = minute.to_s});
  minute.held = holders_at_end(then);
  minute.grown = holders_by_growth(then);
  if (!view.recording->info.cgroup) return minute;
  const CgroupAccount& group = *view.recording->info.cgroup;
  minute.trend = held_trend(group, end_s);
  minute.has_others = !group.made_by_record;
  minute.before = at_kill != nullptr ? at_kill : fullest_before(group, end_s);
  if (minute.before != nullptr)
    minute.lazy_free_bytes =
        std::min(lazy_free_at(*view.recording, minute.before->time_s), minute.before->anon_bytes.value_or(0));
  if (group.made_by_record && minute.before != nullptr && minute.before->shmem_bytes) {
    raise_unmapped(*minute.before->shmem_bytes, minute.held);
    const CgroupReading* first = last_at(group.readings, minute.from_s);
    const std::int64_t first_bytes = first == nullptr ? 0 : first->shmem_bytes.value_or(0);
    raise_unmapped(*minute.before->shmem_bytes - first_bytes, minute.grown);
  }
  return minute;
}

std::string held_sentence(const LastMinute& minute) {
  if (minute.before == nullptr || !minute.before->file_bytes) return "";
  std::string reclaimable = *minute.before->file_bytes > 0 ? "the file cache" : "";
  if (minute.lazy_free_bytes >= kNamedLazyBytes)
    reclaimable += fmt::format("{}{} of the anonymous memory, given up with MADV_FREE,",
                               reclaimable.empty() ? "" : " and ", size_text(minute.lazy_free_bytes));
  return fmt::format(" At {} the group held {}{}: {} could have been taken back.", seconds_text(minute.before->time_s),
                     held_parts_text(*minute.before), minute.has_others ? kOfAll : "",
                     reclaimable.empty() ? "none of it" : "only " + reclaimable);
}

std::string grown_sentence(const LastMinute& minute) {
  if (minute.grown.empty()) return "";
  const std::string time =
      fmt::format("its {}{}", minute.from_s > 0 ? "last " : "", seconds_text(minute.to_s - minute.from_s));
  const HeldTrend& trend = minute.trend;
  std::string text;
  if (trend.bytes > 0)
    text = fmt::format(" From {} to {} the group grew by {}{}.", seconds_text(trend.from_s), seconds_text(trend.to_s),
                       size_text(trend.bytes), minute.has_others ? kOfAll : "");
  text += fmt::format(" What grew most{} in {}: ", minute.has_others ? " of this job" : "", time);
  for (std::size_t i = 0; i < std::min(kGrownNamed, minute.grown.size()); ++i)
    text += (i == 0 ? "" : ", ") + holder_text(minute.grown[i]);
  return text + ".";
}

void add_evidence(const LastMinute& minute, nlohmann::ordered_json& evidence) {
  if (minute.before != nullptr)
    evidence["before"] = {{"time_s", minute.before->time_s},
                          {"anon_bytes", minute.before->anon_bytes.value_or(0)},
                          {"shmem_bytes", minute.before->shmem_bytes.value_or(0)},
                          {"lazy_free_bytes", minute.lazy_free_bytes},
                          {"reclaimable_bytes", minute.before->file_bytes.value_or(0) + minute.lazy_free_bytes}};
  if (minute.trend.bytes > 0)
    evidence["group_grew"] = {
        {"from_s", minute.trend.from_s}, {"to_s", minute.trend.to_s}, {"bytes", minute.trend.bytes}};
  evidence["bytes_per_s"] = minute.trend.bytes_per_s();
  evidence["held_by"] = holder_evidence(minute.held);
  evidence["grown_in_last_minute"] = holder_evidence(minute.grown);
}

}  // namespace whyrss
