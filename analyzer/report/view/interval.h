// The stretch of a recording that a report is about. Times are seconds since the recording began.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "model/account.h"
#include "support/result.h"

namespace whyrss {

struct Interval {
  double from_s = 0;
  double to_s = 0;
  // The beginning or the end of a phase, which has asked for a walk of each process.
  bool from_phase = false, to_phase = false;
  int from_pid = 0, to_pid = 0;  // whose phase that is: it waited for its walk
  // Of each process its own teardown, if that comes first.
  bool from_teardown = false, to_teardown = false;
};

// Shown as one: times have three digits.
bool is_moment(const Interval& interval);

// From the beginning to the last moment that is known of any process, but not into teardowns.
Interval whole_life(const RecordingAccount& recording);

// Of its life, without its teardown.
double end_of_work(const RecordingAccount& recording, const ProcessAccount& process);

// When it was read last, where the recording breaks off before its end, as one whose collector was killed: nothing is
// known of it after that.
std::optional<double> broken_off_s(const RecordingAccount& recording, const ProcessAccount& process);

// `from` and `to` as typed: seconds ("1.5"), a phase's name (its begin for `from`, its end for `to`; of several phases
// of one name the first begin and the last end, and of "train#2" the second named "train" alone), a mark's name (of
// several likewise), "teardown", or "" for the default. Seconds alone reach into teardowns.
Result<Interval> parse_interval(const RecordingAccount& recording, const std::string& from, const std::string& to);

// "train#2" where several have its name; what parse_interval takes. `phase` is one of the recording's.
std::string numbered_name(const RecordingAccount& recording, const Phase& phase);
// How many phases parse_interval takes that name for.
std::size_t count_phases(const RecordingAccount& recording, const std::string& text);

// For one process: up to the walks of it that are nearest to the edges of phases, which may come a moment later.
Interval interval_of(const ProcessAccount& process, Interval interval);

// For sums over processes: up to the last of those walks.
Interval interval_of_all(const RecordingAccount& recording, Interval interval);

}  // namespace whyrss
