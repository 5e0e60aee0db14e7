#include "report/verdicts/limit_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/verdicts/lazy_free_rule.h"
#include "report/view/build_view.h"
#include "report/view/holders.h"
#include "report/view/limit_effect.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

int main_pid(const View& view) { return view.recording->processes.front().pid; }

bool has_limit(const View& view) {
  const RecordingInfo& info = view.recording->info;
  return info.cgroup && info.cgroup->limit_bytes && !view.recording->processes.empty() && !has_oom_kill(info);
}

bool is_near(std::int64_t held, std::int64_t limit) {
  return static_cast<double>(held) >= kNearLimitShare * static_cast<double>(limit);
}

struct Held {
  const CgroupReading* reading = nullptr;  // nullptr: none was read
  std::int64_t bytes = 0;
};

// When most was held that the kernel cannot take back: what was given up with MADV_FREE it can.
Held most_held(const View& view) {
  Held most;
  for (const CgroupReading& reading : view.recording->info.cgroup->readings) {
    if (!reading.anon_bytes) continue;
    const std::int64_t lazy = std::min(lazy_free_at(*view.recording, reading.time_s), *reading.anon_bytes);
    const std::int64_t held = held_bytes(reading) - lazy;
    if (most.reading == nullptr || held > most.bytes) most = {&reading, held};
  }
  return most;
}

// Of what rests since, its pace before says nothing.
std::string pace_text(const HeldTrend& trend, double until_s, std::int64_t left) {
  constexpr double kRestsPart = 0.25;  // of the time in which it grew
  if (until_s - trend.to_s > kRestsPart * (trend.to_s - trend.from_s)) return ", and no further";
  const double pace = trend.bytes_per_s();
  return fmt::format(", {}/s: at that pace the limit is met {} later", size_text(static_cast<std::int64_t>(pace)),
                     seconds_text(static_cast<double>(left) / pace));
}

}  // namespace

bool has_oom_kill(const RecordingInfo& recording) { return recording.oom_killed || !recording.oom_kills.empty(); }

void limit_reclaimed(const View& view, std::vector<Verdict>& verdicts) {
  if (!has_limit(view)) return;
  const CgroupAccount& group = *view.recording->info.cgroup;
  const LimitEffect effect = limit_effect(group);
  if (!effect.was_reached || effect.reclaimed_bytes.value_or(kNamedGrowthBytes) < kNamedGrowthBytes) return;
  if (effect.oom_kills.value_or(0) > 0) return;
  if (is_near(most_held(view).bytes, *group.limit_bytes)) return;
  Verdict verdict{.id = "limit-reclaimed",
                  .severity = Severity::ok,
                  .pid = main_pid(view),
                  .bytes = effect.reclaimed_bytes.value_or(effect.reclaimed_at_least)};
  verdict.headline = fmt::format("{} under a memory limit of {}: {}", group.made_by_record ? "ran" : "runs",
                                 size_text(*group.limit_bytes), limit_hits_text(effect));
  verdict.why =
      "A memory cgroup counts page cache too. When its limit is reached, the kernel first takes back file cache, and "
      "kills only when nothing of that kind is left.";
  verdict.advice = "Nothing to fix.";
  if (effect.refaulted_bytes.value_or(0) >= kNamedGrowthBytes)
    verdict.advice =
        fmt::format("{} of files were read again after they had been taken back: a higher limit would save that time.",
                    size_text(*effect.refaulted_bytes));
  verdict.evidence["limit_bytes"] = *group.limit_bytes;
  if (effect.limit_hits) verdict.evidence["limit_hits"] = *effect.limit_hits;
  if (effect.reclaimed_bytes) verdict.evidence["reclaimed_bytes"] = *effect.reclaimed_bytes;
  verdict.evidence["reclaimed_at_least_bytes"] = effect.reclaimed_at_least;
  verdicts.push_back(std::move(verdict));
}

void limit_rereading(const View& view, std::vector<Verdict>& verdicts) {
  constexpr std::int64_t kLeastTimes = 4;  // the limit; a pass over a file that is larger is no more than its size
  const RecordingInfo& info = view.recording->info;
  if (!info.cgroup || !info.cgroup->limit_bytes || view.recording->processes.empty()) return;
  const std::int64_t limit = std::max<std::int64_t>(*info.cgroup->limit_bytes, 1);
  const auto again = rereading(*info.cgroup);
  if (!again || again->bytes < std::max(kLeastTimes * limit, kNamedGrowthBytes)) return;
  Verdict verdict{.id = "limit-rereading", .severity = Severity::warning, .pid = main_pid(view), .bytes = again->bytes};
  verdict.headline = fmt::format(
      "{} of files were read again after the kernel had taken them back: {} times the memory limit of {}, from {} to "
      "{}",
      size_text(again->bytes), again->bytes / limit, size_text(limit), seconds_text(again->from_s),
      seconds_text(again->to_s));
  verdict.why =
      "At its limit the kernel takes file cache first, also the pages of the program's own code: what is needed again "
      "is read from the disk each time, and the program waits for it.";
  if (again->bytes_per_s() > 0)
    verdict.why += fmt::format(" It read {}/s.", size_text(static_cast<std::int64_t>(again->bytes_per_s())));
  if (const auto [fullest, held] = most_held(view); fullest != nullptr) {
    const View then = build_processes(*view.recording, {.from_s = 0, .to_s = fullest->time_s});
    const std::vector<Holder> holders = holders_at_end(then);
    verdict.why += fmt::format(" At {} {} were left for files{}{}.", seconds_text(fullest->time_s),
                               size_text(std::max<std::int64_t>(limit - held, 0)),
                               holders.empty() ? "" : "; most of the rest was ",
                               holders.empty() ? "" : main_holder_text(holders, *main_holder(holders)));
  }
  verdict.advice = "Raise the limit, or hold less at a time, so that the files in use fit beside it.";
  verdict.evidence["limit_bytes"] = limit;
  verdict.evidence["refaulted_bytes"] = again->bytes;
  verdict.evidence["from_s"] = again->from_s;
  verdict.evidence["to_s"] = again->to_s;
  verdict.evidence["bytes_per_s"] = again->bytes_per_s();
  verdicts.push_back(std::move(verdict));
}

void near_limit(const View& view, std::vector<Verdict>& verdicts) {
  if (!has_limit(view)) return;
  const CgroupAccount& group = *view.recording->info.cgroup;
  const auto [fullest, held] = most_held(view);
  if (fullest == nullptr || !is_near(held, *group.limit_bytes)) return;
  const std::int64_t left = std::max<std::int64_t>(*group.limit_bytes - held, 0);
  const View then = build_processes(*view.recording, {.from_s = 0, .to_s = fullest->time_s});
  const std::vector<Holder> holders = holders_at_end(then);
  Verdict verdict{.id = "near-limit", .severity = Severity::warning, .pid = main_pid(view), .bytes = held};
  verdict.headline = fmt::format("{} of the memory limit of {} were held by what the kernel cannot take back{}{}",
                                 size_text(held), size_text(*group.limit_bytes), holders.empty() ? "" : ", most by ",
                                 holders.empty() ? "" : main_holder_text(holders, *main_holder(holders)));
  verdict.why = fmt::format(
      "When anonymous and shared memory fill the group, the kernel kills a process of it; file cache does not count. "
      "At {} {} were left.",
      seconds_text(fullest->time_s), size_text(left));
  const HeldTrend trend = held_trend(group, fullest->time_s);
  if (trend.bytes > 0)
    verdict.why += fmt::format(" From {} to {} it grew by {}{}.", seconds_text(trend.from_s), seconds_text(trend.to_s),
                               size_text(trend.bytes), pace_text(trend, fullest->time_s, left));
  verdict.advice = "Hold less at a time at the lines named here, or raise the limit.";
  verdict.evidence["limit_bytes"] = *group.limit_bytes;
  verdict.evidence["held_bytes"] = held;
  verdict.evidence["at_s"] = fullest->time_s;
  verdict.evidence["bytes_per_s"] = trend.bytes_per_s();
  verdict.evidence["held_by"] = holder_evidence(holders);
  verdicts.push_back(std::move(verdict));
}

}  // namespace whyrss
