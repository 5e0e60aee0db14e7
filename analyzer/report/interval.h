// The stretch of a recording that a report is about. Times are seconds since the recording began.
#pragma once

#include <string>

#include "model/account.h"
#include "support/result.h"

namespace whyrss {

struct Interval {
  double from_s = 0;
  double to_s = 0;
  // The beginning or the end of a phase, which has asked for a look at each process.
  bool from_phase = false, to_phase = false;
  // Of each process its own teardown, if that comes first.
  bool from_teardown = false, to_teardown = false;
};

// From the beginning to the last moment that any process was seen, but not into teardowns.
Interval whole_life(const RecordingAccount& recording);

// Of its life, without its teardown.
double end_of_work(const RecordingAccount& recording, const ProcessAccount& process);

// `from` and `to` as typed: seconds ("1.5"), a phase's name (its begin for `from`, its end for `to`; of several phases
// of one name the first begin and the last end), "teardown", or "" for the default. Seconds alone reach into teardowns.
Result<Interval> parse_interval(const RecordingAccount& recording, const std::string& from, const std::string& to);

// For one process: up to the looks at it that are nearest to the edges of phases, which may come a moment later.
Interval interval_of(const ProcessAccount& process, Interval interval);

}  // namespace whyrss
