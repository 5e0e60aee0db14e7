// What a memory cgroup's limit did to the run, and how the formats say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/account.h"

namespace whyrss {

// Counted during the recording; nothing: not reported.
struct LimitEffect {
  std::optional<std::int64_t> limit_hits, refaulted_bytes, oom_kills;
  std::optional<std::int64_t> reclaimed_bytes;  // v2
  std::int64_t reclaimed_at_least = 0;          // of files: what came back, or walks found gone; v1 reports no more
  bool was_reached = false;
  bool is_v1 = false;
  // When most was held that the kernel cannot take back: anonymous and shared memory. Null: it was not read.
  const CgroupReading* fullest = nullptr;
};

// Whether the kernel noted the peak; else it is the largest reading, and there may have been more in between.
bool peak_is_noted(const CgroupAccount& group);

LimitEffect limit_effect(const CgroupAccount& group);

// Anonymous and shared memory: what no reclaim frees without swap.
std::int64_t held_bytes(const CgroupReading& reading);

// How that grew in the minute before a time, or since the first reading, without a time at either end in which it did
// not. bytes 0: not at all, or not known.
struct HeldTrend {
  double from_s = 0, to_s = 0;
  std::int64_t bytes = 0;
  [[nodiscard]] double bytes_per_s() const;
};
HeldTrend held_trend(const CgroupAccount& group, double until_s);

// Of files: what was read again after the kernel had taken it back, and when nearly all of that was.
struct Rereading {
  std::int64_t bytes = 0;
  double from_s = 0, to_s = 0;
  [[nodiscard]] double bytes_per_s() const;  // 0: within one reading
};
// Nothing where the kernel does not count it.
std::optional<Rereading> rereading(const CgroupAccount& group);

// "the limit was hit 7 times, the kernel took back 140 MiB, no process was killed"; "" where it is not known.
std::string limit_hits_text(const LimitEffect& effect);
// "9.0 MiB anonymous memory, 119 MiB file cache"; "" where it is not known.
std::string held_parts_text(const CgroupReading& reading);

// One sentence per line, for "All processes together"; none without a group.
std::vector<std::string> limit_effect_lines(const RecordingInfo& recording);

}  // namespace whyrss
