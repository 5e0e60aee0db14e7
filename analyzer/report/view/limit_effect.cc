#include "report/view/limit_effect.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

using Member = std::optional<std::int64_t> CgroupReading::*;

// Of a counter.
std::optional<std::int64_t> counted(const CgroupAccount& group, Member member) {
  std::optional<std::int64_t> first, last;
  for (const CgroupReading& reading : group.readings) {
    if (!(reading.*member)) continue;
    if (!first) first = reading.*member;
    last = reading.*member;
  }
  return first ? std::optional(std::max<std::int64_t>(*last - *first, 0)) : std::nullopt;
}

bool is_fuller(const CgroupReading& a, const CgroupReading& b) {
  const std::int64_t held_a = held_bytes(a), held_b = held_bytes(b);
  return held_a != held_b ? held_a > held_b : a.usage_bytes.value_or(0) > b.usage_bytes.value_or(0);
}

std::string times(std::int64_t count) { return count == 1 ? "once" : fmt::format("{} times", count); }

// cgroup v1 does not count it, nor does v2 in some kernels.
std::string reclaimed_text(const LimitEffect& effect) {
  if (effect.reclaimed_bytes) return fmt::format("the kernel took back {}", size_text(*effect.reclaimed_bytes));
  if (effect.reclaimed_at_least >= kNamedGrowthBytes)
    return fmt::format("the kernel took back at least {} of file cache", size_text(effect.reclaimed_at_least));
  return std::string("how much the kernel took back is not known") + (effect.is_v1 ? " (cgroup v1)" : "");
}

}  // namespace

std::string held_parts_text(const CgroupReading& reading) {
  if (!reading.anon_bytes) return "";
  std::string text = fmt::format("{} anonymous memory", size_text(*reading.anon_bytes));
  if (reading.shmem_bytes.value_or(0) > 0) text += fmt::format(", {} shared memory", size_text(*reading.shmem_bytes));
  if (reading.file_bytes) text += fmt::format(", {} file cache", size_text(*reading.file_bytes));
  return text;
}

std::string limit_hits_text(const LimitEffect& effect) {
  if (!effect.was_reached) return effect.limit_hits ? "the limit was never reached" : "";
  std::string text = effect.limit_hits ? "the limit was hit " + times(*effect.limit_hits) : "the limit was reached";
  text += ", " + reclaimed_text(effect);
  if (!effect.oom_kills) return text;
  return text + (*effect.oom_kills == 0   ? ", no process was killed"
                 : *effect.oom_kills == 1 ? ", 1 process was killed"
                                          : fmt::format(", {} processes were killed", *effect.oom_kills));
}

std::int64_t held_bytes(const CgroupReading& reading) {
  return reading.anon_bytes.value_or(0) + reading.shmem_bytes.value_or(0);
}

bool peak_is_noted(const CgroupAccount& group) {
  return group.peak_bytes && std::ranges::any_of(group.readings, [&](const CgroupReading& reading) {
           return reading.peak_bytes == group.peak_bytes;
         });
}

LimitEffect limit_effect(const CgroupAccount& group) {
  LimitEffect effect;
  effect.is_v1 = group.version == 1;
  effect.limit_hits = counted(group, &CgroupReading::limit_hits);
  effect.refaulted_bytes = counted(group, &CgroupReading::refaulted_bytes);
  effect.oom_kills = counted(group, &CgroupReading::oom_kills);
  effect.reclaimed_bytes = counted(group, &CgroupReading::reclaimed_bytes);
  effect.reclaimed_at_least = std::max(effect.refaulted_bytes.value_or(0), group.seen_reclaimed_bytes);
  effect.was_reached = effect.limit_hits ? *effect.limit_hits > 0
                                         : group.limit_bytes && group.peak_bytes.value_or(0) >= *group.limit_bytes;
  for (const CgroupReading& reading : group.readings)
    if (reading.anon_bytes && (effect.fullest == nullptr || is_fuller(reading, *effect.fullest)))
      effect.fullest = &reading;
  return effect;
}

HeldTrend held_trend(const CgroupAccount& group, double until_s) {
  constexpr double kMinuteS = 60;
  constexpr std::int64_t kNearlyNone = 20;  // one in so many
  constexpr double kFlat = 0.5;             // of the pace in between
  std::vector<const CgroupReading*> readings;
  for (const CgroupReading& reading : group.readings) {
    if (!reading.anon_bytes || reading.after_end || reading.time_s > until_s) continue;
    if (reading.time_s <= until_s - kMinuteS) readings.clear();
    readings.push_back(&reading);
  }
  if (readings.empty()) return {};
  const CgroupReading &first = *readings.front(), &last = *readings.back();
  const std::int64_t grown = held_bytes(last) - held_bytes(first);
  if (grown <= 0) return {};
  const CgroupReading *from = &first, *to = &last;
  for (const CgroupReading* reading : readings)
    if (held_bytes(*reading) - held_bytes(first) <= grown / kNearlyNone) from = reading;
  for (auto reading = readings.rbegin(); reading != readings.rend(); ++reading) {
    if (held_bytes(last) - held_bytes(**reading) > grown / kNearlyNone) break;
    to = *reading;
  }
  const auto pace = [](const CgroupReading& begin, const CgroupReading& end) {
    const double seconds = end.time_s - begin.time_s;
    return seconds > 0 ? static_cast<double>(held_bytes(end) - held_bytes(begin)) / seconds : 0;
  };
  const double between = pace(*from, *to);
  if (pace(first, *from) > between * kFlat) from = &first;
  if (pace(*to, last) > between * kFlat) to = &last;
  return {.from_s = from->time_s, .to_s = to->time_s, .bytes = held_bytes(*to) - held_bytes(*from)};
}

double HeldTrend::bytes_per_s() const { return to_s > from_s ? static_cast<double>(bytes) / (to_s - from_s) : 0; }

double Rereading::bytes_per_s() const { return to_s > from_s ? static_cast<double>(bytes) / (to_s - from_s) : 0; }

std::optional<Rereading> rereading(const CgroupAccount& group) {
  constexpr std::int64_t kNearlyNone = 20;  // one in so many
  std::vector<const CgroupReading*> counts;
  for (const CgroupReading& reading : group.readings)
    if (reading.refaulted_bytes) counts.push_back(&reading);
  if (counts.empty()) return std::nullopt;
  const std::int64_t first = *counts.front()->refaulted_bytes;
  const std::int64_t bytes = std::max<std::int64_t>(*counts.back()->refaulted_bytes - first, 0);
  Rereading result{.bytes = bytes, .from_s = counts.front()->time_s, .to_s = counts.back()->time_s};
  for (const CgroupReading* reading : counts)
    if (*reading->refaulted_bytes - first <= bytes / kNearlyNone) result.from_s = reading->time_s;
  const auto end = std::ranges::find_if(counts, [&](const CgroupReading* reading) {
    return *reading->refaulted_bytes - first >= bytes - bytes / kNearlyNone;
  });
  if (end != counts.end()) result.to_s = (*end)->time_s;
  return result;
}

std::vector<std::string> limit_effect_lines(const RecordingInfo& recording) {
  // Without a limit the peak is that of whatever else ran in the group, and before.
  if (!recording.cgroup || !recording.cgroup->limit_bytes) return {};
  const CgroupAccount& group = *recording.cgroup;
  const LimitEffect effect = limit_effect(group);
  std::vector<std::string> lines{fmt::format("memory cgroup: limit {}, peak {}", size_text(*group.limit_bytes),
                                             group.peak_bytes ? size_text(*group.peak_bytes) : "not known")};
  if (const std::string hits = limit_hits_text(effect); !hits.empty()) lines.front() += "; " + hits;
  if (effect.fullest != nullptr)
    lines.push_back(fmt::format("in the group when it was fullest, at {}: {}", seconds_text(effect.fullest->time_s),
                                held_parts_text(*effect.fullest)));
  return lines;
}

}  // namespace whyrss
