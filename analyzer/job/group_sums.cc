#include "job/group_sums.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>

namespace whyrss {
namespace {

// An outlier: half more than the median, by an amount that a reader would look for, and beyond how far the others are
// usually apart (five times the median deviation: three standard deviations of a normal distribution).
constexpr double kOutlyingRatio = 1.5, kOutlyingDeviations = 5;
constexpr std::int64_t kOutlyingBytes = 16 * 1024 * 1024;

std::uint64_t key_of(Cause cause, std::uint32_t line) { return static_cast<std::uint64_t>(cause) << 32 | line; }

std::int64_t lower_median(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void sort_unique(std::vector<std::int64_t>& numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

void GroupSums::add(Unlisted& sum, const CauseFigures& cause) {
  sum.most += std::min(cause.omitted_most, cause.omitted_at_peak);
  sum.all += cause.omitted_at_peak;
}

bool is_larger(const GroupSums::Row& a, const GroupSums::Row& b) {
  const auto key = [](const GroupSums::Row& row) {
    return std::tuple(-row.rss_peak, row.label.place.recording, row.label.place.process);
  };
  return key(a) < key(b);
}

Spread spread_of(std::vector<std::int64_t> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](std::size_t percent) { return values[(values.size() * percent + 99) / 100 - 1]; };
  return {.min = values.front(),
          .median = at(50),
          .p95 = at(95),
          .max = values.back(),
          .sum = std::accumulate(values.begin(), values.end(), std::int64_t{0})};
}

void GroupSums::add(const ReducedProcess& process, const ProcessLabel& label, const std::vector<std::uint32_t>& lines) {
  std::int64_t shared = 0;
  for (const CauseFigures& cause : process.causes)
    if (cause.cause == Cause::fork_shared) shared = cause.at_peak;
  rows_.push_back({label, process.rss_peak, process.rss_peak - shared});
  last_.push_back(process.rss_last);
  for (const CauseFigures& cause : process.causes) {
    at_peak_[static_cast<std::size_t>(cause.cause)].push_back(cause.at_peak);
    add(unlisted_[static_cast<std::size_t>(cause.cause)], cause);
  }
  rss_by_time_.merge(process.rss_by_time);
  add_lines(process, lines);
  add_verdicts(process, label);
}

void GroupSums::add_lines(const ReducedProcess& process, const std::vector<std::uint32_t>& lines) {
  std::array<const CauseFigures*, kCauseCount> causes{};
  for (const CauseFigures& cause : process.causes) causes[static_cast<std::size_t>(cause.cause)] = &cause;
  for (const LineFigures& line : process.lines) {
    LineSum& sum = lines_[key_of(line.cause, lines[line.line])];
    ++sum.process_count;
    sum.sum += line.at_peak;
    sum.growth_sum += line.growth;
    sum.most = std::max(sum.most, line.at_peak);
    const double error = 1024 * static_cast<double>(line.error_kib);
    sum.variance += error * error;
    if (const CauseFigures* cause = causes[static_cast<std::size_t>(line.cause)]) add(sum.listed, *cause);
    sum.sketch.add(line.at_peak);
  }
}

void GroupSums::add_verdicts(const ReducedProcess& process, const ProcessLabel& label) {
  for (const ReducedVerdict& verdict : process.verdicts) {
    VerdictSum& sum = verdicts_[verdict.id];
    if (sum.bytes.empty() || verdict.bytes > sum.most.bytes) {
      sum.most = verdict;
      sum.where = label;
    }
    sum.severity = sum.bytes.empty() ? verdict.severity : std::max(sum.severity, verdict.severity);
    sum.bytes.push_back(verdict.bytes);
    if (label.rank) sum.ranks.push_back(*label.rank);
  }
}

std::int64_t GroupSums::median_of(Cause cause, std::uint32_t line) const {
  const auto found = lines_.find(key_of(cause, line));
  if (found == lines_.end()) return 0;
  return found->second.sketch.quantile(0.5, rows_.size() - found->second.sketch.weight());
}

std::vector<GroupSums::Row> GroupSums::outlying_rows(std::int64_t& median) const {
  std::vector<std::int64_t> held;
  for (const Row& row : rows_) held.push_back(row.held);
  median = lower_median(held);
  for (std::int64_t& bytes : held) bytes = std::abs(bytes - median);
  const auto deviation = static_cast<double>(lower_median(held));
  std::vector<Row> outlying;
  for (const Row& row : rows_) {
    const std::int64_t more = row.held - median;
    if (more >= kOutlyingBytes && static_cast<double>(more) > deviation * kOutlyingDeviations &&
        static_cast<double>(row.held) >= static_cast<double>(median) * kOutlyingRatio)
      outlying.push_back(row);
  }
  std::ranges::sort(outlying, is_larger);
  return outlying;
}

std::vector<GroupCause> GroupSums::causes() const {
  std::vector<GroupCause> causes;
  for (std::size_t i = 0; i < kCauseCount; ++i) {
    if (at_peak_[i].empty()) continue;
    std::vector<std::int64_t> values = at_peak_[i];
    values.resize(rows_.size());  // the others have nothing of it
    causes.push_back({.cause = static_cast<Cause>(i),
                      .at_peak = spread_of(std::move(values)),
                      .line_error = unlisted_[i].most,
                      .unlisted = unlisted_[i].all});
  }
  std::ranges::stable_sort(causes, std::greater<>(), [](const GroupCause& cause) { return cause.at_peak.sum; });
  return causes;
}

std::vector<GroupLine> GroupSums::group_lines(const JobLines& lines) const {
  std::vector<GroupLine> list;
  for (const auto& [key, sum] : lines_) {
    const auto cause = static_cast<Cause>(key >> 32);
    const std::uint64_t zeros = rows_.size() - sum.sketch.weight();
    list.push_back({.cause = cause,
                    .line = lines[static_cast<std::uint32_t>(key)],
                    .process_count = sum.process_count,
                    .sum = sum.sum,
                    .growth_sum = sum.growth_sum,
                    .most = sum.most,
                    .median = std::min(sum.sketch.quantile(0.5, zeros), sum.most),  // a sketch errs by 1 %
                    .p95 = std::min(sum.sketch.quantile(0.95, zeros), sum.most),
                    .error = unlisted_[static_cast<std::size_t>(cause)].most - sum.listed.most,
                    .variance = sum.variance});
  }
  std::ranges::sort(list, {}, [](const GroupLine& line) { return std::tuple(-line.sum, line.cause, line.line); });
  return list;
}

std::vector<GroupVerdict> GroupSums::group_verdicts() const {
  std::vector<GroupVerdict> list;
  for (const auto& [id, sum] : verdicts_) {
    GroupVerdict verdict{.id = id,
                         .severity = sum.severity,
                         .process_count = sum.bytes.size(),
                         .ranks = sum.ranks,
                         .bytes = spread_of(sum.bytes),
                         .headline = sum.most.headline,
                         .most = sum.where};
    sort_unique(verdict.ranks);
    list.push_back(std::move(verdict));
  }
  std::ranges::stable_sort(list, [](const GroupVerdict& a, const GroupVerdict& b) {
    return std::tuple(a.severity, a.bytes.sum) > std::tuple(b.severity, b.bytes.sum);
  });
  return list;
}

JobGroup GroupSums::group(const JobLines& lines) const {
  JobGroup group;
  group.process_count = rows_.size();
  std::vector<std::int64_t> peaks;
  for (const Row& row : rows_) {
    peaks.push_back(row.rss_peak);
    if (row.label.rank) group.ranks.push_back(*row.label.rank);
  }
  sort_unique(group.ranks);
  group.rss_peak = spread_of(std::move(peaks));
  group.rss_last = spread_of(last_);
  group.largest = std::ranges::min_element(rows_, is_larger)->label;
  group.p50_by_time = rss_by_time_.quantile(0.5);
  group.p95_by_time = rss_by_time_.quantile(0.95);
  group.p99_by_time = rss_by_time_.quantile(0.99);
  group.causes = causes();
  group.lines = group_lines(lines);
  group.verdicts = group_verdicts();
  return group;
}

}  // namespace whyrss
