// What holds at a moment, of a series that is sorted by time, and how often it fell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace whyrss {

// nullptr: none is that old.
template <typename T>
const T* last_at(const std::vector<T>& series, double time_s) {
  const auto after = std::upper_bound(series.begin(), series.end(), time_s,
                                      [](double time, const T& entry) { return time < entry.time_s; });
  return after == series.begin() ? nullptr : &*(after - 1);
}

template <typename T>
const T* first_after(const std::vector<T>& series, double time_s) {
  const auto after = std::upper_bound(series.begin(), series.end(), time_s,
                                      [](double time, const T& entry) { return time < entry.time_s; });
  return after == series.end() ? nullptr : &*after;
}

// How often `bytes` of points fell by `depth` or more from a height that they had climbed by as much.
template <typename Point>
int count_falls(const std::vector<Point>& points, std::int64_t depth) {
  if (points.empty()) return 0;
  int falls = 0;
  bool rising = true;
  std::int64_t turn = points.front().bytes;  // the highest since the last fall, or the lowest since the last rise
  for (const Point& point : points) {
    if (rising ? point.bytes > turn : point.bytes < turn) turn = point.bytes;
    if (std::abs(point.bytes - turn) < depth) continue;
    if (rising) ++falls;
    rising = !rising;
    turn = point.bytes;
  }
  return falls;
}

}  // namespace whyrss
