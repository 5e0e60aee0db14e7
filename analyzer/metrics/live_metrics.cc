#include "metrics/live_metrics.h"

#include <algorithm>
#include <limits>

#include "support/printable.h"

namespace whyrss {

LiveMetrics LiveMetrics::open(const MetricsTargets& targets) {
  LiveMetrics metrics;
  if (!targets.address.empty()) {
    const auto address = parse_metrics_address(targets.address);
    auto server = address ? MetricsServer::listen(*address) : Result<MetricsServer>(address.failure());
    if (server) {
      metrics.url_ = server->url();
      metrics.server_ = std::make_unique<MetricsServer>(std::move(*server));
    } else {
      metrics.note(server.failure());
    }
  }
  if (!targets.file.empty()) {
    metrics.file_ = std::make_unique<MetricsFile>(targets.file, targets.file_mode);
    if (const Status written = metrics.file_->write({}); !written) metrics.note(written.failure());
  }
  return metrics;
}

void LiveMetrics::note(const Error& fault) {
  const std::string line = printable("no live figures: " + fault.message);
  if (std::ranges::find(faults_, line) == faults_.end()) faults_.push_back(line);
}

std::int64_t LiveMetrics::wait_for(std::vector<pollfd>& entries, std::int64_t now_ns) const {
  return server_ ? server_->wait_for(entries, now_ns) : std::numeric_limits<std::int64_t>::max();
}

void LiveMetrics::serve(std::int64_t now_ns, const FiguresOf& figures_of) {
  if (server_)
    server_->serve(now_ns,
                   [&](MetricsFormat format) -> const std::string& { return text_of(format, now_ns, figures_of); });
  if (file_ && now_ns >= next_file_ns_) write_file(now_ns, figures_of);
}

const std::string& LiveMetrics::text_of(MetricsFormat format, std::int64_t now_ns, const FiguresOf& figures_of) {
  const bool is_old = !figures_ || now_ns - figures_ns_ >= kFreshNs;
  if (is_old) {
    figures_ = figures_of();
    figures_ns_ = now_ns;
  }
  if (is_old || format != text_format_) text_ = render_metrics(*figures_, format);
  text_format_ = format;
  return text_;
}

void LiveMetrics::write_file(std::int64_t now_ns, const FiguresOf& figures_of) {
  next_file_ns_ = now_ns + kFreshNs;
  const Status written = file_->write(text_of(MetricsFormat::prometheus, now_ns, figures_of));
  if (!written) note(written.failure());
}

}  // namespace whyrss
