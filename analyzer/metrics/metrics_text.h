// Live figures as a scrape gets them. Names and labels are those of `whyrss export --format openmetrics`, where the
// same is meant.
#pragma once

#include <string>

#include "metrics/live_figures.h"

namespace whyrss {

// prometheus: text format 0.0.4, which everything reads; openmetrics: OpenMetrics 1.0.
enum class MetricsFormat { prometheus, openmetrics };

std::string render_metrics(const LiveFigures& figures, MetricsFormat format);

}  // namespace whyrss
