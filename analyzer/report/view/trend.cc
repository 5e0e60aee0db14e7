#include "report/view/trend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "report/view/line_text.h"
#include "report/view/memory_figures.h"
#include "report/view/memory_series.h"
#include "report/view/series.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

using Points = std::vector<MemorySeries::Point>;

struct Span {
  double from_s = 0, to_s = 0;
  [[nodiscard]] double length() const { return to_s - from_s; }
  [[nodiscard]] double at(double part) const { return from_s + part * length(); }
};

// By how much the lowest of the last third is above that of the first.
std::int64_t risen(const MemorySeries& series, Span span) {
  return series.lowest(span.at(2. / 3), span.to_s) - series.lowest(span.from_s, span.at(1. / 3));
}

// The first of the walks from which on all lie between the two, or below them by no more than their errors.
std::optional<double> within_since(const Points& points, std::int64_t least, std::int64_t most) {
  constexpr double kErrors = 2;
  const auto is_within = [&](const MemorySeries::Point& point) {
    const auto missing = static_cast<double>(least - point.bytes);
    return point.bytes <= most && missing <= kErrors * std::sqrt(point.variance + points.back().variance);
  };
  std::size_t first = points.size();
  while (first > 0 && is_within(points[first - 1])) --first;
  return points.size() - first < 2 ? std::nullopt : std::optional(points[first].time_s);
}

// From when on it has not grown; for a moment it may have been more (a table that was copied to a larger one). A sum
// may be flat while one line takes the place of another: the line that has most of it must have been there.
std::optional<double> flat_since(const CauseSeries& series, std::int64_t growth) {
  constexpr double kMomentShare = 0.25;
  const auto share = [&](double part) { return static_cast<std::int64_t>(part * static_cast<double>(growth)); };
  const std::int64_t last = series.whole.last();
  auto since_s = within_since(series.whole.points(), last - share(kFlatShare), last + share(kMomentShare));
  for (const LineSeries& line : series.lines) {
    const std::int64_t kept = line.series.last();
    if (!since_s || 2 * kept < growth) continue;
    const auto line_since_s =
        within_since(line.series.points(), kept - share(kFlatShare), std::numeric_limits<std::int64_t>::max());
    since_s = line_since_s ? std::optional(std::max(*since_s, *line_since_s)) : std::nullopt;
  }
  return since_s;
}

// Since when most of it has stayed, where that is far longer than ever before: the last of its waves is kept.
std::optional<double> stays_since(const Points& points, std::int64_t growth, double end_s) {
  constexpr double kTimesLonger = 2;
  const std::int64_t least = points.back().bytes - growth / 2;
  std::optional<double> since_s;
  double longest_s = 0;
  for (const MemorySeries::Point& point : points) {
    const bool is_there = point.bytes >= least;
    if (is_there && !since_s) since_s = point.time_s;
    if (is_there || !since_s) continue;
    longest_s = std::max(longest_s, point.time_s - *since_s);
    since_s.reset();
  }
  return since_s && end_s - *since_s >= kTimesLonger * longest_s ? since_s : std::nullopt;
}

std::int64_t grown_since(const MemorySeries& series, double time_s) { return series.last() - series.kept_from(time_s); }

// Whether it kept growing through all of `span`, by more than noise.
bool grew_evenly(const MemorySeries& series, Span span) {
  constexpr int kQuarters = 4;
  constexpr int kLeastRises = 2;  // one is a step
  const std::int64_t growth = grown_since(series, span.from_s);
  const double variance = series.variance_at(span.from_s) + series.points().back().variance;
  if (growth < kSlowGrowthBytes || !is_significant(growth, variance) ||
      static_cast<double>(growth) < kSlowGrowthShare * static_cast<double>(series.last()))
    return false;
  if (std::ranges::count_if(series.points(), [&](const auto& point) { return point.time_s > span.from_s; }) <
      kLeastRises)
    return false;
  std::int64_t before = series.kept_from(span.from_s);
  for (int quarter = 1; quarter <= kQuarters; ++quarter) {
    const std::int64_t then =
        quarter == kQuarters ? series.last() : series.kept_from(span.at(static_cast<double>(quarter) / kQuarters));
    const double part = static_cast<double>(then - before) / static_cast<double>(growth);
    if (part < kQuarterShare || part > kMostInQuarter) return false;
    before = then;
  }
  return true;
}

constexpr double kLatestEvenStart = 0.25;  // of what grew through most of the time

struct Climb {
  double since_s = 0;
  bool evenly = false;  // through most of the time
};

// From when on it grew evenly to the end. Whatever came before that, loading data for one, is not judged; `flat_s`:
// since then it has hardly grown for its size.
std::optional<Climb> climb_of(const MemorySeries& series, Span span, std::optional<double> flat_s) {
  constexpr std::array kStarts{0.0, 0.125, 0.25, 0.375, 0.5};
  for (const double start : kStarts)
    if (grew_evenly(series, {span.at(start), span.to_s})) return Climb{span.at(start), start <= kLatestEvenStart};
  if (flat_s && grew_evenly(series, {*flat_s, span.to_s})) return Climb{*flat_s, false};
  return std::nullopt;
}

// When it rose, and up to which bytes.
struct Rises {
  MemorySeries::Kept early, last;
  double longest_pause_s = 0;
};

// From `since_s` on: what it falls back to counts, not what it works with at a time. `early`: the last rise by
// `until_s`.
Rises rises_of(const MemorySeries& series, double since_s, double until_s) {
  constexpr std::int64_t kStepPart = 100;  // of what it grew by
  const std::vector<MemorySeries::Kept> kept = series.kept_over(since_s);
  const std::int64_t step = std::max<std::int64_t>((series.last() - kept.front().bytes) / kStepPart, 1);
  Rises rises{.early = kept.front(), .last = kept.front()};
  for (const MemorySeries::Kept& then : kept) {
    if (then.bytes - rises.last.bytes < step) continue;
    rises.longest_pause_s = std::max(rises.longest_pause_s, then.time_s - rises.last.time_s);
    rises.last = then;
    if (then.time_s <= until_s) rises.early = then;
  }
  return rises;
}
Rises rises_of(const MemorySeries& series, double since_s) { return rises_of(series, since_s, since_s); }

// When what began to grow at `since_s` stopped, if it has rested since for longer than twice its longest pause.
std::optional<double> stopped_at(const MemorySeries& series, double since_s, Span span) {
  constexpr double kRestPart = 0.05;  // of the span
  constexpr double kTimesLonger = 2;
  const Rises rises = rises_of(series, since_s);
  const double rest_s = span.to_s - rises.last.time_s;
  const bool has_stopped = rest_s >= kRestPart * span.length() && rest_s > kTimesLonger * rises.longest_pause_s;
  return has_stopped ? std::optional(rises.last.time_s) : std::nullopt;
}

// What grew evenly, and rests at the end: from when to when. `to_end`: how it climbs where the rest is taken for a
// part.
std::optional<Span> stopped_climb(const MemorySeries& series, Span span, const std::optional<Climb>& to_end) {
  auto climb = climb_of(series, {span.from_s, rises_of(series, span.from_s).last.time_s}, std::nullopt);
  if (!climb) climb = to_end;
  const auto stopped_s = climb ? stopped_at(series, climb->since_s, span) : std::nullopt;
  return stopped_s ? std::optional(Span{climb->since_s, *stopped_s}) : std::nullopt;
}

// Bytes per second to the last rise of all: between two bursts lies a whole pause, and the rest after the last one does
// not count. From the last rise before the last third, or from earlier on where that is too short for such pauses, but
// not from before `since_s`, when it began to grow.
double rate_of(const MemorySeries& series, Span span, double since_s) {
  constexpr double kLeastPauses = 3;
  for (const double start_s : {span.at(2. / 3), span.at(1. / 3), since_s}) {
    const Rises rises = rises_of(series, since_s, std::max(start_s, since_s));
    const double length_s = rises.last.time_s - rises.early.time_s;
    const bool is_last = start_s <= since_s;
    if (length_s > 0 && (is_last || length_s >= kLeastPauses * rises.longest_pause_s))
      return static_cast<double>(rises.last.bytes - rises.early.bytes) / length_s;
    if (is_last) break;
  }
  return static_cast<double>(grown_since(series, span.at(2. / 3))) / (span.length() / 3);
}

// What it grew by in the last third, but no more than its peaks grew: what comes and goes may happen to be there at the
// end.
std::int64_t grown_lately(const MemorySeries& series, Span span) {
  const std::int64_t peaks =
      series.highest(span.at(2. / 3), span.to_s) - series.highest(span.at(1. / 3), span.at(2. / 3));
  return std::min(grown_since(series, span.at(2. / 3)), peaks);
}

// Whether what it grew by since then is memory that had been asked for before and was touched for the first time. The
// moment is then that of the walk from which on this is so: blocks may have been allocated just after `since_s`.
std::optional<Trend::Filling> filling_of(const MemorySeries& series, double since_s) {
  constexpr double kFilledPart = 0.8;
  constexpr double kLatestStart = 0.25;  // of the growth
  const auto& points = series.points();
  const std::int64_t growth = grown_since(series, since_s), left = points.back().untouched_bytes;
  for (auto point = std::ranges::lower_bound(points, since_s, {}, &MemorySeries::Point::time_s); point != points.end();
       ++point) {
    const std::int64_t rest = series.last() - point->bytes;
    if (static_cast<double>(rest) < (1 - kLatestStart) * static_cast<double>(growth)) break;
    if (static_cast<double>(point->untouched_bytes - left) >= kFilledPart * static_cast<double>(rest))
      return Trend::Filling{point->time_s, left};
  }
  return std::nullopt;
}

// What a line grew by since then, with the error of that.
LineGrowth grown_line(const LineSeries& line, double since_s) {
  LineGrowth grown = line.line;
  grown.bytes = grown_since(line.series, since_s);
  grown.variance = line.series.variance_at(since_s) + line.series.points().back().variance;
  return grown;
}

void largest_first(std::vector<LineGrowth>& lines) {
  std::erase_if(lines, [](const LineGrowth& line) { return !is_significant(line.bytes, line.variance); });
  std::ranges::stable_sort(lines, std::greater(), &LineGrowth::bytes);
}

enum class Climbs { all, of_short_programs };

// Lines that grew evenly to the end, while all together did not; in short programs those that did nearly all the time,
// and by much.
void find_climbing_lines(const CauseSeries& series, Span span, Climbs which, Trend& trend) {
  const LineSeries* largest = nullptr;
  std::optional<Climb> climb;
  for (const LineSeries& line : series.lines) {
    const auto found = climb_of(line.series, span, std::nullopt);
    if (!found || stopped_at(line.series, found->since_s, span)) continue;
    LineGrowth grown = grown_line(line, found->since_s);
    if (which == Climbs::of_short_programs && !(found->evenly && grown.bytes >= kNamedGrowthBytes)) continue;
    if (2 * grown.bytes > trend.climbed_bytes && trend.climbed_bytes > 0) continue;  // it is what has stopped
    trend.lines.push_back(std::move(grown));
    if (largest != nullptr && trend.lines.back().bytes <= trend.bytes) continue;
    largest = &line;
    climb = found;
    trend.bytes = trend.lines.back().bytes;
  }
  if (largest == nullptr) return;
  trend.bytes_per_s = rate_of(largest->series, span, climb->since_s);
  // What takes the place of other memory is no leak.
  const Span most{span.at(kLatestEvenStart), span.to_s};
  trend.evenly = climb->evenly && 2 * risen(series.whole, most) >= risen(largest->series, most);
  trend.filling = filling_of(largest->series, climb->since_s);
  largest_first(trend.lines);
}

// A short program imports for a good part of its life: its work begins after that.
Span span_of_work(const CauseSeries& series, Span life) {
  constexpr double kLeastPart = 0.25, kMostPart = 2. / 3;
  const double imported_s = series.imported_s.value_or(life.from_s);
  return imported_s < life.at(kLeastPart) || imported_s > life.at(kMostPart) ? life : Span{imported_s, life.to_s};
}

// The last poll up to `until_s` to which, from the walk on, neither RSS nor the bytes of live blocks moved. Nothing:
// they did.
std::optional<double> rested_until(const ProcessAccount& account, const MemorySeries::Point& walked, double until_s) {
  constexpr std::int64_t kMovedBytes = 1024 * 1024;
  double end_s = walked.time_s;
  for (const RssPoint& poll : account.polls) {
    if (poll.time_s <= walked.time_s || poll.time_s > until_s) continue;
    if (!is_like(poll.rss_bytes, walked.rss_bytes)) return std::nullopt;
    end_s = poll.time_s;
  }
  const LivePoint* live = last_at(account.live_polls, walked.time_s);
  for (const LivePoint& poll : account.live_polls) {
    const bool is_of_rest = poll.time_s > walked.time_s && poll.time_s <= end_s;
    if (is_of_rest && std::abs(poll.live_bytes - (live == nullptr ? 0 : live->live_bytes)) >= kMovedBytes)
      return std::nullopt;
  }
  return end_s;
}

constexpr double kLeastRestS = 0.2;

// A process at rest is not walked: to the end of it the heap is as at the last walk. Of other causes that says little,
// as one may take the place of another.
void rest_to_end(const ProcessView& process, CauseSeries& series) {
  if (series.whole.points().empty()) return;
  const MemorySeries::Point walked = series.whole.points().back();
  const auto end_s = rested_until(*process.account, walked, process.interval.to_s);
  if (!end_s || *end_s - walked.time_s < kLeastRestS) return;
  const auto extend = [&](MemorySeries& at_walks) {
    MemorySeries::Point point = at_walks.points().back();
    point.time_s = *end_s;
    at_walks.add(point);
  };
  extend(series.whole);
  for (LineSeries& line : series.lines) extend(line.series);
}

// Whether it was not read for a good part of that time, at its end, and did not rest then.
bool was_unseen(const ProcessAccount& account, Cause cause, const Points& points, Span span) {
  constexpr double kUnseenPart = 4;
  const double unseen_s = account.unseen_s.value_or(0);
  if (unseen_s <= span.length() / kUnseenPart || !account.ended_s || *account.ended_s - unseen_s >= span.to_s)
    return false;
  const auto unseen = std::ranges::upper_bound(points, *account.ended_s - unseen_s, {}, &MemorySeries::Point::time_s);
  if (cause != Cause::heap_live || unseen == points.begin()) return true;
  const auto rested_s = rested_until(account, *std::prev(unseen), *account.ended_s);
  return !rested_s || *account.ended_s - *rested_s >= kLeastRestS;
}

}  // namespace

Trend trend_of(const StackTable& stacks, const ProcessView& process, const CauseView& cause) {
  Trend trend;
  CauseSeries series = series_of(stacks, process, cause, kSlowGrowthBytes);
  if (cause.cause == Cause::heap_live) rest_to_end(process, series);
  const Points& points = series.whole.points();
  const Interval& interval = process.interval;
  // What came after the last walk, of a damaged recording for one, is not known.
  const double from_s = std::max(interval.from_s, process.account->born_s);
  const Span span = span_of_work(series, {from_s, points.empty() ? from_s : points.back().time_s});
  trend.from_s = from_s;
  trend.span_s = span.length();
  if (points.size() < kTrendPoints || trend.span_s <= 0 || was_unseen(*process.account, cause.cause, points, span))
    return trend;
  const std::int64_t growth = cause.rss.growth() - series.imported_growth;
  if (growth <= 0) return trend;
  constexpr double kLatestFlat = 0.25;  // of the time that it stays: else it grows from wave to wave
  const bool long_enough = trend.span_s >= kTrendSpanS;
  const auto flat_s = flat_since(series, growth);
  const auto climb = climb_of(series.whole, span, flat_s);
  const bool long_enough_if_evenly = trend.span_s >= kShortTrendSpanS;
  const bool is_short_climb =
      long_enough_if_evenly && climb && climb->evenly && grown_since(series.whole, climb->since_s) >= kNamedGrowthBytes;
  trend.falls = count_falls(points, growth / 2);
  const auto stays_s = stays_since(points, growth, span.to_s);
  const bool stays = stays_s && flat_s && *flat_s - *stays_s <= kLatestFlat * (span.to_s - *stays_s);
  if (trend.falls >= 2 && stays) {
    trend.kind = Trend::Kind::flat;
    trend.since_s = std::max(*stays_s, *flat_s);
  } else if (trend.falls >= 2 && risen(series.whole, span) < growth / 2) {
    trend.kind = Trend::Kind::waves;
  } else if (!climb && flat_s && span.to_s - *flat_s >= trend.span_s / 3) {
    trend.kind = Trend::Kind::flat;
    trend.since_s = *flat_s;
  } else if (const auto stopped = stopped_climb(series.whole, span, climb);
             stopped && (long_enough || is_short_climb)) {
    trend.kind = Trend::Kind::flat;
    trend.since_s = stopped->to_s;
    trend.climbed_bytes = grown_since(series.whole, stopped->from_s);
  } else if (long_enough || is_short_climb) {
    const std::int64_t lately = grown_lately(series.whole, span);
    if (climb || static_cast<double>(lately) >= kStillGrowingShare * static_cast<double>(growth)) {
      trend.kind = Trend::Kind::growing;
      trend.since_s = climb ? climb->since_s : span.at(2. / 3);
      trend.evenly = climb && climb->evenly;
      trend.bytes_per_s = rate_of(series.whole, span, trend.since_s);
      trend.bytes = grown_since(series.whole, trend.since_s);
      trend.filling = filling_of(series.whole, trend.since_s);
      for (const LineSeries& line : series.lines) trend.lines.push_back(grown_line(line, trend.since_s));
      std::erase_if(trend.lines, [](const LineGrowth& line) { return line.bytes <= 0; });
      largest_first(trend.lines);
    }
  }
  if (long_enough_if_evenly && trend.kind != Trend::Kind::growing)
    find_climbing_lines(series, span, long_enough ? Climbs::all : Climbs::of_short_programs, trend);
  trend.leak_like = trend.evenly && !trend.filling && trend.span_s >= kLeakSpanS && trend.bytes >= kNamedGrowthBytes;
  return trend;
}

const LineGrowth* growing_line(const Trend& trend) {
  const LineGrowth* top = trend.lines.empty() ? nullptr : &trend.lines.front();
  const bool stands_out = top != nullptr && (trend.kind != Trend::Kind::growing || 2 * top->bytes > trend.bytes);
  return stands_out ? top : nullptr;
}

std::string enumerated(const std::vector<LineGrowth>& lines, std::string (*text_of)(const LineGrowth&)) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += (i == 0 ? "" : i + 1 == lines.size() ? " and " : ", ") + text_of(lines[i]);
  return text;
}

std::vector<LineGrowth> growing_lines(const Trend& trend) {
  constexpr std::size_t kMostLines = 3;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < std::min(trend.lines.size(), kMostLines); ++i) {
    bytes += trend.lines[i].bytes;
    if (2 * bytes > trend.bytes) return {trend.lines.begin(), trend.lines.begin() + static_cast<std::ptrdiff_t>(i) + 1};
  }
  return {};
}

namespace {

bool is_same_line(const LineGrowth& one, const LineGrowth& other) {
  return one.runtime.empty() ? one.line == other.line && one.file == other.file : one.runtime == other.runtime;
}

// ", mostly at a.py:7 in f and at a.py:9 in g" of what grows at other lines than the `reported` one.
std::string spread_text(const Trend& trend, const LineGrowth& reported) {
  if (trend.kind != Trend::Kind::growing || trend.lines.empty() || is_same_line(trend.lines.front(), reported))
    return "";
  const std::vector<LineGrowth> lines = growing_lines(trend);
  return lines.empty() ? ", at many lines" : ", mostly " + enumerated(lines, placed_text);
}

}  // namespace

std::string trend_text(const Trend& trend, const std::vector<LineGrowth>& named) {
  std::string text;
  if (trend.kind == Trend::Kind::flat) text = ", flat since " + seconds_text(trend.since_s);
  if (trend.kind == Trend::Kind::waves) text = ", comes and goes";
  if (trend.bytes_per_s <= 0) return text;
  text += fmt::format("{} still growing at the end by {}/s", text.empty() ? "," : ", but",
                      size_text(std::llround(trend.bytes_per_s)));
  const std::string end =
      trend.filling ? fmt::format("; {} of what it asked for are not touched yet", size_text(trend.filling->left_bytes))
                    : "";
  const LineGrowth* line = growing_line(trend);
  const LineGrowth* top = top_named(named);
  if (line == nullptr) return text + (top == nullptr ? "" : spread_text(trend, *top)) + end;
  const bool is_reported = top != nullptr && is_same_line(*line, *top);
  if (is_reported && trend.kind == Trend::Kind::growing) return text + end;
  const bool most = trend.kind == Trend::Kind::growing && !dominates(line->bytes, trend.bytes);
  return text + fmt::format("{} {}{}", most ? ", mostly" : "", placed_text(*line), end);
}

std::string filling_text(const Trend& trend) {
  if (!trend.filling) return "";
  return fmt::format(
      "It fills memory that it has had since {}: what a program asks for counts in RSS when it is first touched. This "
      "ends by itself once the {} that it has not touched are used too, unless it asks for more then. Ask for less at "
      "that line if the job does not need so much.",
      seconds_text(trend.filling->since_s), size_text(trend.filling->left_bytes));
}

nlohmann::ordered_json trend_evidence(const Trend& trend) {
  nlohmann::ordered_json json{{"kind", nullptr}};
  switch (trend.kind) {
    case Trend::Kind::unknown:
      break;
    case Trend::Kind::flat:
      json = {{"kind", "flat"}, {"since_s", trend.since_s}};
      if (trend.climbed_bytes > 0) json["climbed_bytes"] = trend.climbed_bytes;
      break;
    case Trend::Kind::waves:
      json = {{"kind", "waves"}, {"falls", trend.falls}};
      break;
    case Trend::Kind::growing:
      json = {{"kind", "growing"}, {"since_s", trend.since_s}, {"growth_bytes", trend.bytes}};
  }
  if (trend.bytes_per_s <= 0) return json;
  json["bytes_per_s"] = std::llround(trend.bytes_per_s);
  json["growing_lines"] = line_evidence(trend.lines);
  if (trend.filling) json["fills"] = {{"since_s", trend.filling->since_s}, {"left_bytes", trend.filling->left_bytes}};
  return json;
}

}  // namespace whyrss
