// What schedulers that add up processes would say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/view/process_times.h"
#include "report/view/view.h"

namespace whyrss {

AccountingView account_memory(const ProcessTimes& times, Interval interval);

// As ps and top print it; nothing where the machine's memory is not known.
std::optional<double> memory_percent(const View& view, std::int64_t rss_bytes);

}  // namespace whyrss
