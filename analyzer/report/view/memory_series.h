// The bytes of one cause of a process, or of one of its lines, over time: at each walk, and in between.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/view/blame_sums.h"
#include "report/view/view.h"

namespace whyrss {

class MemorySeries {
 public:
  struct Point {
    double time_s = 0;
    std::int64_t bytes = 0;
    std::int64_t rss_bytes = 0;  // of the whole process
    double variance = 0;         // of `bytes`
    std::int64_t untouched_bytes = 0;
  };

  explicit MemorySeries(const std::vector<RssPoint>& polls) : polls_(&polls) {}
  void add(const Point& point) { points_.push_back(point); }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  [[nodiscard]] std::int64_t last() const { return points_.back().bytes; }

  // The least that it was from `time_s` on: what came with a temporary rise before the end does not count. Between two
  // walks it moved as RSS did, if RSS moved by as much, else evenly (a faster rise would have been walked) while RSS
  // moved.
  [[nodiscard]] std::int64_t kept_from(double time_s) const;
  // Of the walk of or before it.
  [[nodiscard]] double variance_at(double time_s) const;
  // Of the first walk of or after it.
  [[nodiscard]] std::int64_t untouched_from(double time_s) const;
  [[nodiscard]] std::int64_t lowest(double from_s, double to_s) const;
  [[nodiscard]] std::int64_t highest(double from_s, double to_s) const;

  struct Kept {
    double time_s = 0;
    std::int64_t bytes = 0;
  };
  // kept_from() at `from_s`, and from there on at each walk and wherever RSS was read in between; by time.
  [[nodiscard]] std::vector<Kept> kept_over(double from_s) const;

 private:
  [[nodiscard]] std::int64_t between_walks(double time_s) const;
  // Of two walks after each other. `from_s`, `to_s`: where it moved evenly; from_s is to_s where it moved as RSS did.
  struct Course {
    const Point& before;
    const Point& after;
    double from_s, to_s;
  };
  [[nodiscard]] Course course(const Point& before, const Point& after) const;
  [[nodiscard]] std::int64_t on_course(const Course& course, double time_s) const;

  const std::vector<RssPoint>* polls_;
  std::vector<Point> points_;  // by time
};

struct LineSeries {
  LineGrowth line;
  MemorySeries series;
};

struct CauseSeries {
  MemorySeries whole;
  std::int64_t imported_growth = 0;  // of the cause, left out here
  std::optional<double> imported_s;  // when nearly all of that was there
  std::vector<LineSeries> lines;     // named ones that grew by `least_bytes` or more, largest first
};

// In the process's own interval: the state at its start, then every walk in it. Without what imports made.
CauseSeries series_of(const StackTable& stacks, const ProcessView& process, const CauseView& cause,
                      std::int64_t least_bytes);

}  // namespace whyrss
