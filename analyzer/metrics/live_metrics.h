// All that serves live figures while a recording goes on: `record --metrics` and `--metrics-file`. What cannot be
// served costs the recording nothing: one line says so.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metrics/live_figures.h"
#include "metrics/metrics_file.h"
#include "metrics/metrics_server.h"

namespace whyrss {

struct MetricsTargets {
  std::string address;  // as parse_metrics_address() takes it; "": none
  std::string file;     // absolute; "": none
  mode_t file_mode = 0600;
};

class LiveMetrics {
 public:
  // Figures are read anew after so long; the file is written as often.
  static constexpr std::int64_t kFreshNs = 1'000'000'000;

  using FiguresOf = std::function<LiveFigures()>;

  LiveMetrics() = default;  // serves nothing
  static LiveMetrics open(const MetricsTargets& targets);

  [[nodiscard]] const std::string& url() const { return url_; }                     // "": none
  [[nodiscard]] const std::vector<std::string>& faults() const { return faults_; }  // each once, one line

  // As MetricsServer has it.
  std::int64_t wait_for(std::vector<pollfd>& entries, std::int64_t now_ns) const;
  void serve(std::int64_t now_ns, const FiguresOf& figures_of);

 private:
  const std::string& text_of(MetricsFormat format, std::int64_t now_ns, const FiguresOf& figures_of);
  void write_file(std::int64_t now_ns, const FiguresOf& figures_of);
  void note(const Error& fault);

  std::unique_ptr<MetricsServer> server_;
  std::unique_ptr<MetricsFile> file_;
  std::string url_;
  std::vector<std::string> faults_;
  std::optional<LiveFigures> figures_;
  std::string text_;
  MetricsFormat text_format_ = MetricsFormat::prometheus;
  std::int64_t figures_ns_ = 0, next_file_ns_ = 0;
};

}  // namespace whyrss
