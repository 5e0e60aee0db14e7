// The requests that a scrape consists of: as much of HTTP/1.1 as that needs. Every byte is hostile.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "metrics/metrics_text.h"

namespace whyrss {

// A request has no more, or is refused. Prometheus sends some 300.
inline constexpr std::size_t kMostRequestBytes = 8 * 1024;

struct MetricsRequest {
  int status = 0;  // of the answer; 0: the request is not whole yet
  bool wants_body = true;
  MetricsFormat format = MetricsFormat::prometheus;
};

// `bytes`: all that has come so far.
MetricsRequest parse_metrics_request(std::string_view bytes);

// The whole answer; `text` is for status 200 alone.
std::string render_answer(const MetricsRequest& request, std::string_view text);

}  // namespace whyrss
