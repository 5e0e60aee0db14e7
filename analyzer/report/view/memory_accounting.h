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

// How much of the RSS sum counts memory that is there once. The moment's PSS is known.
std::int64_t counted_again(const AccountingMoment& moment);
// The moment at which that was most; nothing where PSS of the processes was never read. `prefer_read`: one without
// estimates, where there is one.
std::optional<AccountingMoment> most_counted_again(const ProcessTimes& times, Interval interval, bool prefer_read);

}  // namespace whyrss
