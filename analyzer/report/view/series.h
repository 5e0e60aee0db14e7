// What holds at a moment, of a series that is sorted by time.
#pragma once

#include <algorithm>
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

}  // namespace whyrss
