#include "report/view/memory_series.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "report/view/blame.h"
#include "report/view/line_text.h"

namespace whyrss {
namespace {

// A leak that is not among so many lines is in no report either; each costs a figure per walk.
constexpr std::size_t kFollowedLines = 64;

// Whether two changes are about the same one.
bool go_together(std::int64_t a, std::int64_t b) {
  return a != 0 && (a > 0) == (b > 0) && std::abs(a) <= 2 * std::abs(b) && std::abs(b) <= 2 * std::abs(a);
}

// What of a cause imports made, by stacks. What was freed since is judged by its stack alone.
class Imports {
 public:
  Imports(const StackTable& stacks, const CauseView& cause) : stacks_(&stacks) {
    if (!can_be_of_imports(cause.cause)) return;
    any_ = true;
    for (const SiteView& site : cause.sites)
      if (importing_stack(stacks, cause.cause, site) == kEmptyStack) own_.insert(site.stack);
  }
  [[nodiscard]] bool made(StackId stack) const {
    return any_ && stack != kEmptyStack && imported_frame(*stacks_, stack) != nullptr && !own_.contains(stack);
  }

 private:
  const StackTable* stacks_;
  bool any_ = false;
  std::unordered_set<StackId> own_;
};

}  // namespace

MemorySeries::Course MemorySeries::course(const Point& before, const Point& after) const {
  constexpr std::int64_t kNoticedPart = 8;  // of what was grown: RSS would show it
  const std::int64_t grown = after.bytes - before.bytes;
  const auto begin = std::ranges::lower_bound(*polls_, before.time_s, {}, &RssPoint::time_s);
  const auto end = std::ranges::upper_bound(begin, polls_->end(), after.time_s, {}, &RssPoint::time_s);
  if (begin != end && go_together(grown, after.rss_bytes - before.rss_bytes))
    return {before, after, after.time_s, after.time_s};
  const auto moved_from = [&](const Point& walk) {
    return [&walk, least = std::abs(grown) / kNoticedPart](const RssPoint& poll) {
      return std::abs(poll.rss_bytes - walk.rss_bytes) > least;
    };
  };
  const auto first = std::find_if(begin, end, moved_from(before));
  const auto last = std::find_if(std::reverse_iterator(end), std::reverse_iterator(begin), moved_from(after)).base();
  const double from_s = first == begin ? before.time_s : std::prev(first)->time_s;
  const double to_s = last == end ? after.time_s : last->time_s;
  // RSS may have stayed as it was while it grew and others shrank.
  if (from_s >= to_s) return {before, after, before.time_s, after.time_s};
  return {before, after, from_s, to_s};
}

std::int64_t MemorySeries::on_course(const Course& course, double time_s) const {
  const auto& [before, after, from_s, to_s] = course;
  double part = 0;
  if (from_s < to_s) {
    part = (time_s - from_s) / (to_s - from_s);
  } else if (const auto next = std::ranges::upper_bound(*polls_, time_s, {}, &RssPoint::time_s);
             next != polls_->begin() && std::prev(next)->time_s >= before.time_s) {
    const std::int64_t by_then = std::prev(next)->rss_bytes - before.rss_bytes;
    part = static_cast<double>(by_then) / static_cast<double>(after.rss_bytes - before.rss_bytes);
  } else {
    part = (time_s - before.time_s) / (after.time_s - before.time_s);
  }
  const double grown = static_cast<double>(after.bytes - before.bytes);
  return before.bytes + static_cast<std::int64_t>(std::llround(std::clamp(part, 0.0, 1.0) * grown));
}

std::int64_t MemorySeries::between_walks(double time_s) const {
  const auto after = std::ranges::upper_bound(points_, time_s, {}, &Point::time_s);
  if (after == points_.begin()) return 0;
  const Point& before = *std::prev(after);
  return after == points_.end() ? before.bytes : on_course(course(before, *after), time_s);
}

std::int64_t MemorySeries::kept_from(double time_s) const {
  const auto after = std::ranges::upper_bound(points_, time_s, {}, &Point::time_s);
  std::int64_t kept = between_walks(time_s);
  for (auto point = after; point != points_.end(); ++point) kept = std::min(kept, point->bytes);
  return kept;
}

double MemorySeries::variance_at(double time_s) const {
  const auto after = std::ranges::upper_bound(points_, time_s, {}, &Point::time_s);
  return after == points_.begin() ? 0 : std::prev(after)->variance;
}

std::int64_t MemorySeries::untouched_from(double time_s) const {
  const auto point = std::ranges::lower_bound(points_, time_s, {}, &Point::time_s);
  return point == points_.end() ? points_.back().untouched_bytes : point->untouched_bytes;
}

std::int64_t MemorySeries::lowest(double from_s, double to_s) const {
  std::optional<std::int64_t> least;
  for (const Point& point : points_)
    if (point.time_s >= from_s && point.time_s <= to_s) least = std::min(least.value_or(point.bytes), point.bytes);
  return least.value_or(last());
}

std::int64_t MemorySeries::highest(double from_s, double to_s) const {
  std::optional<std::int64_t> most;
  for (const Point& point : points_)
    if (point.time_s >= from_s && point.time_s <= to_s) most = std::max(most.value_or(point.bytes), point.bytes);
  return most.value_or(between_walks(from_s));
}

std::vector<MemorySeries::Kept> MemorySeries::kept_over(double from_s) const {
  std::vector<Kept> backwards;
  std::int64_t kept = last();
  for (auto point = points_.rbegin(); point != points_.rend() && point->time_s > from_s; ++point) {
    kept = std::min(kept, point->bytes);
    backwards.push_back({point->time_s, kept});
    const auto before = std::next(point);
    if (before == points_.rend()) break;
    const double since_s = std::max(before->time_s, from_s);
    const Course between = course(*before, *point);
    auto poll = std::ranges::lower_bound(*polls_, point->time_s, {}, &RssPoint::time_s);
    while (poll != polls_->begin() && std::prev(poll)->time_s > since_s) {
      --poll;
      backwards.push_back({poll->time_s, std::min(kept, on_course(between, poll->time_s))});
    }
  }
  backwards.push_back({from_s, kept_from(from_s)});
  std::ranges::reverse(backwards);
  return backwards;
}

CauseSeries series_of(const StackTable& stacks, const ProcessView& process, const CauseView& cause,
                      std::int64_t least_bytes) {
  const ProcessAccount& account = *process.account;
  const Interval& interval = process.interval;
  CauseSeries series{.whole = MemorySeries(account.polls), .imported_s = {}, .lines = {}};
  const Imports imports(stacks, cause);
  std::vector<const SiteView*> own_sites;
  for (const SiteView& site : cause.sites) {
    if (imports.made(site.stack))
      series.imported_growth += site.growth;
    else
      own_sites.push_back(&site);
  }
  for (LineGrowth& line : growth_by_line(stacks, own_sites))
    if (!line.line.empty() && line.bytes >= least_bytes && series.lines.size() < kFollowedLines)
      series.lines.push_back({std::move(line), MemorySeries(account.polls)});

  std::unordered_map<const Frame*, std::optional<std::size_t>> line_of;
  const auto find_line = [&](StackId stack) {
    const Frame* frame = blamed_frame(stacks, stack);
    const auto [place, is_new] = line_of.try_emplace(frame);
    if (!is_new) return place->second;
    const std::string name = code_line(stacks, frame);
    for (std::size_t i = 0; i < series.lines.size() && frame != nullptr; ++i)
      if (series.lines[i].line.line.ends_with(name) && series.lines[i].line.file == frame->file) place->second = i;
    return place->second;
  };

  std::vector<MemorySeries::Kept> imported;
  auto state = account.accounts.begin();  // in force at the interval's start
  for (auto next = state; next != account.accounts.end() && next->time_s <= interval.from_s; ++next) state = next;
  for (; state != account.accounts.end() && state->time_s <= interval.to_s; ++state) {
    const MemorySeries::Point empty{.time_s = std::max(state->time_s, interval.from_s), .rss_bytes = state->rss_bytes};
    MemorySeries::Point whole = empty;
    bool has_imports = false;
    imported.push_back({.time_s = empty.time_s, .bytes = 0});
    std::vector<MemorySeries::Point> of_lines(series.lines.size(), empty);
    const auto add = [](MemorySeries::Point& point, const Slice& slice) {
      point.bytes += slice.bytes;
      point.variance += slice.variance;
      point.untouched_bytes += slice.untouched_bytes;
    };
    for (const Slice& slice : state->slices) {
      if (slice.site.cause != cause.cause) continue;
      if (imports.made(slice.site.stack)) {
        has_imports = true;
        imported.back().bytes += slice.bytes;
        continue;
      }
      add(whole, slice);
      if (const auto line = find_line(slice.site.stack)) add(of_lines[*line], slice);
    }
    if (state->has_liveness && !has_imports) whole.variance = 0;  // samples share out a sum that is known
    series.whole.add(whole);
    for (std::size_t i = 0; i < of_lines.size(); ++i) series.lines[i].series.add(of_lines[i]);
  }
  const auto is_there = [&](const MemorySeries::Kept& then) { return 10 * then.bytes >= 9 * imported.back().bytes; };
  if (series.imported_growth > 0 && !imported.empty())
    series.imported_s = std::ranges::find_if(imported, is_there)->time_s;
  return series;
}

}  // namespace whyrss
