// Processes alike, added up one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "job/job_lines.h"
#include "job/job_view.h"

namespace whyrss {

// Of a few figures: sorts them.
Spread spread_of(std::vector<std::int64_t> values);

class GroupSums {
 public:
  // `lines`: the job's numbers of the recording's lines.
  void add(const ReducedProcess& process, const ProcessLabel& label, const std::vector<std::uint32_t>& lines);

  [[nodiscard]] JobGroup group(const JobLines& lines) const;

  struct Row {
    ProcessLabel label;
    std::int64_t rss_peak = 0;
    std::int64_t held = 0;  // then, without what it shares since a fork
  };
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  // Those that hold far more than the median of all, furthest first; and that median.
  [[nodiscard]] std::vector<Row> outlying_rows(std::int64_t& median) const;
  // What of all processes the one in the middle has of a line at its peak, to 1 %.
  [[nodiscard]] std::int64_t median_of(Cause cause, std::uint32_t line) const;

 private:
  // What a line that a process does not list may have of a cause, at most: one of them, and all together.
  struct Unlisted {
    std::int64_t most = 0, all = 0;
  };
  struct LineSum {
    std::size_t process_count = 0;
    std::int64_t sum = 0, growth_sum = 0, most = 0;
    double variance = 0;
    Unlisted listed{};  // of those that list it
    LogSketch sketch;
  };
  struct VerdictSum {
    Severity severity = Severity::info;
    std::vector<std::int64_t> ranks, bytes;
    ReducedVerdict most;
    ProcessLabel where;
  };

  static void add(Unlisted& sum, const CauseFigures& cause);
  void add_lines(const ReducedProcess& process, const std::vector<std::uint32_t>& lines);
  void add_verdicts(const ReducedProcess& process, const ProcessLabel& label);
  [[nodiscard]] std::vector<GroupCause> causes() const;
  [[nodiscard]] std::vector<GroupLine> group_lines(const JobLines& lines) const;
  [[nodiscard]] std::vector<GroupVerdict> group_verdicts() const;

  std::vector<Row> rows_;
  std::vector<std::int64_t> last_;
  std::array<std::vector<std::int64_t>, kCauseCount> at_peak_;  // of processes that have it
  std::array<Unlisted, kCauseCount> unlisted_{};                // summed over all processes
  std::unordered_map<std::uint64_t, LineSum> lines_;            // by cause and line
  LogSketch rss_by_time_;
  std::map<std::string, VerdictSum> verdicts_;
};

// Of equal ones the order is that of the file.
bool is_larger(const GroupSums::Row& a, const GroupSums::Row& b);

}  // namespace whyrss
