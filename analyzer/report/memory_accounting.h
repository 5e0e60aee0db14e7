// What schedulers that add up processes would say, and the rule rss-double-counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/verdict.h"

namespace whyrss {

AccountingView account_memory(const RecordingAccount& recording, Interval interval);

// As ps and top print it; nothing where the machine's memory is not known.
std::optional<double> memory_percent(const View& view, std::int64_t rss_bytes);

// The RSS of all processes together is far above their PSS, so that a limit that adds up RSS counts memory that is
// there once several times.
void rss_double_counted(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
