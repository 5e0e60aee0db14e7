// PSS at a moment, as a View tells it of the edges of its interval.
#pragma once

#include <cstdint>
#include <optional>

#include "report/view/process_times.h"

namespace whyrss {

struct PssMoment {
  std::optional<std::int64_t> bytes;  // nothing: it was never read
  bool estimate = false;              // it, or what it shares with relatives, has moved since it was read
};

PssMoment pss_of_process(const ProcessTimes& times, const ProcessAccount& process, double time_s);
PssMoment pss_of_family(const ProcessTimes& times, double time_s);  // of those that were there

}  // namespace whyrss
