// OpenMetrics text 1.0: resident memory by cause over time, and RSS as polled, for Prometheus and its kin.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "export/export_format.h"
#include "support/printable.h"

namespace whyrss {
namespace {

class MetricsWriter {
 public:
  MetricsWriter(const View& view, const ByteSink& write)
      : view_(view), write_(write), started_ns_(started_ns(view.recording->info)) {}

  void causes() {
    begin("whyrss_resident_bytes",
          "Resident memory by cause, at each snapshot; the causes of a process sum to its RSS.");
    for (const ProcessView& process : view_.processes) {
      const std::vector<CauseMoment> moments = cause_moments(process);
      for (const CauseInfo& cause : kCauses) causes(process, cause, moments);
    }
  }

  // Of the interval, and between two snapshots too.
  void polls() {
    begin("whyrss_rss_bytes", "Resident memory as it was polled.");
    for (const ProcessView& process : view_.processes) {
      std::int64_t last_ms = -1;
      for (const RssPoint& poll : process.account->polls) {
        const std::int64_t now_ms = std::llround(poll.time_s * 1000);
        if (poll.time_s < process.interval.from_s || poll.time_s > process.interval.to_s || now_ms <= last_ms) continue;
        last_ms = now_ms;
        sample(fmt::format("whyrss_rss_bytes{{{}}}", labels(process)), poll.rss_bytes, poll.time_s);
      }
    }
  }

  void end() { write_("# EOF\n"); }

 private:
  // From its first snapshot with this cause on, and 0 where it has none any more.
  void causes(const ProcessView& process, const CauseInfo& cause, const std::vector<CauseMoment>& moments) {
    const auto bytes_of = [&](const CauseMoment& moment) {
      return moment.bytes.at(static_cast<std::size_t>(cause.cause));
    };
    const std::string name = fmt::format("whyrss_resident_bytes{{{},cause=\"{}\"}}", labels(process), cause.slug);
    const auto first = std::ranges::find_if(moments, [&](const CauseMoment& moment) { return bytes_of(moment) != 0; });
    for (auto moment = first; moment != moments.end(); ++moment) sample(name, bytes_of(*moment), moment->time_s);
  }

  void begin(std::string_view family, std::string_view help) {
    write_(fmt::format("# TYPE {0} gauge\n# UNIT {0} bytes\n# HELP {0} {1}\n", family, help));
  }

  [[nodiscard]] std::string labels(const ProcessView& process) const {
    const ProcessAccount& account = *process.account;
    const RecordingInfo& info = view_.recording->info;
    return fmt::format(R"(host="{}",recording="{}",pid="{}",born_s="{:.3f}",process="{}")", label_value(info.host),
                       label_value(info.path), account.pid, account.born_s, label_value(process_label(account)));
  }

  // Databases take milliseconds.
  void sample(const std::string& name, std::int64_t bytes, double time_s) {
    const std::int64_t time_ms = started_ns_ / 1'000'000 + std::llround(time_s * 1000);
    write_(fmt::format("{} {} {}.{:03}\n", name, bytes, time_ms / 1000, time_ms % 1000));
  }

  const View& view_;
  const ByteSink& write_;
  std::int64_t started_ns_;
};

}  // namespace

std::vector<std::string> write_openmetrics(const ExportRequest& request, const ByteSink& write) {
  MetricsWriter metrics(*request.view, write);
  metrics.causes();
  metrics.polls();
  metrics.end();
  return {};
}

}  // namespace whyrss
