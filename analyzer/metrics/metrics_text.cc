#include "metrics/metrics_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "support/printable.h"

namespace whyrss {
namespace {

enum class Type { gauge, counter };

struct Family {
  std::string_view name;  // with its unit
  Type type;
  std::string_view help;
};

struct ProcessFamily {
  Family family;
  std::optional<std::int64_t> ProcessFigures::*figure;
};

constexpr std::array kProcessFamilies{
    ProcessFamily{{"whyrss_rss_bytes", Type::gauge, "Resident memory."}, &ProcessFigures::rss_bytes},
    ProcessFamily{{"whyrss_rss_peak_bytes", Type::gauge, "The most that was resident at once (VmHWM)."},
                  &ProcessFigures::rss_peak_bytes},
    ProcessFamily{{"whyrss_pss_bytes", Type::gauge, "Resident memory, each shared page divided by those who map it."},
                  &ProcessFigures::pss_bytes},
    ProcessFamily{{"whyrss_uss_bytes", Type::gauge, "Resident memory that no other process maps."},
                  &ProcessFigures::uss_bytes},
    ProcessFamily{{"whyrss_swap_bytes", Type::gauge, "Memory in swap."}, &ProcessFigures::swap_bytes},
    ProcessFamily{
        {"whyrss_heap_net_bytes", Type::gauge,
         "Bytes of malloc allocated less those freed, since the program's start or, of a forked process, the fork."},
        &ProcessFigures::heap_net_bytes},
};

struct Kind {
  std::string_view slug;
  std::optional<std::int64_t> ProcessFigures::*figure;
};
constexpr Family kByKind{"whyrss_rss_kind_bytes", Type::gauge,
                         "Resident memory by the kernel's kinds, which sum to it."};
constexpr std::array kKinds{Kind{"anon", &ProcessFigures::anon_bytes}, Kind{"file", &ProcessFigures::file_bytes},
                            Kind{"shmem", &ProcessFigures::shmem_bytes}};

std::string_view unit_of(std::string_view name) {
  for (const std::string_view unit : {"bytes", "seconds"})
    if (name.ends_with(unit)) return unit;
  return {};
}

class Text {
 public:
  Text(const LiveFigures& figures, MetricsFormat format)
      : figures_(figures),
        format_(format),
        labels_(fmt::format(R"(host="{}",recording="{}")", label_value(figures.host), label_value(figures.recording))) {
  }

  std::string render() {
    for (const auto& [family, figure] : kProcessFamilies) of_processes(family, figure);
    by_kind();
    of_recording();
    of_group();
    if (format_ == MetricsFormat::openmetrics) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  // A family without a sample is left out.
  void begin(const Family& family) {
    family_ = family;
    has_begun_ = false;
  }

  void sample(const std::string& labels, const std::string& value) {
    if (!std::exchange(has_begun_, true)) write_head();
    text_ += fmt::format("{}{}{{{}}} {}\n", family_.name, family_.type == Type::counter ? "_total" : "", labels, value);
  }
  void sample(const std::string& labels, const std::optional<std::int64_t>& value) {
    if (value) sample(labels, fmt::format("{}", *value));
  }

  // In OpenMetrics the name of a counter's family is without _total, and the unit is stated.
  void write_head() {
    const bool open = format_ == MetricsFormat::openmetrics;
    const bool counts = family_.type == Type::counter;
    const std::string name = fmt::format("{}{}", family_.name, counts && !open ? "_total" : "");
    text_ += fmt::format("# TYPE {} {}\n", name, counts ? "counter" : "gauge");
    if (const std::string_view unit = unit_of(family_.name); open && !unit.empty())
      text_ += fmt::format("# UNIT {} {}\n", name, unit);
    text_ += fmt::format("# HELP {} {}\n", name, family_.help);
  }

  [[nodiscard]] std::string labels_of(const ProcessFigures& process) const {
    return fmt::format(R"({},pid="{}",born_s="{:.3f}",process="{}")", labels_, process.pid, process.born_s,
                       label_value(process.label));
  }

  void of_processes(const Family& family, std::optional<std::int64_t> ProcessFigures::*figure) {
    begin(family);
    for (const ProcessFigures& process : figures_.processes) sample(labels_of(process), process.*figure);
    if (figures_.others.process_count == 0) return;
    const std::string others = labels_ + R"(,pid="other",process="other")";
    if (figure == &ProcessFigures::rss_bytes) sample(others, figures_.others.rss_bytes);
    if (figure == &ProcessFigures::heap_net_bytes) sample(others, figures_.others.heap_net_bytes);
  }

  void by_kind() {
    begin(kByKind);
    for (const ProcessFigures& process : figures_.processes)
      for (const Kind& kind : kKinds)
        sample(fmt::format(R"({},kind="{}")", labels_of(process), kind.slug), process.*kind.figure);
  }

  void count(const Family& family, std::int64_t value) {
    begin(family);
    sample(labels_, std::optional(value));
  }
  void time(const Family& family, double seconds) {
    begin(family);
    sample(labels_, fmt::format("{:.3f}", seconds));
  }

  void of_recording() {
    const auto listed = static_cast<std::int64_t>(figures_.processes.size());
    count({"whyrss_processes", Type::gauge, "Processes that are recorded now."},
          listed + figures_.others.process_count);
    count({"whyrss_other_processes", Type::gauge, "Of them those that have no series of their own."},
          figures_.others.process_count);
    count({"whyrss_seen_processes", Type::counter, "Processes that were recorded so far."}, figures_.seen_processes);
    count({"whyrss_dropped_events", Type::counter, "Events that found no place."}, figures_.dropped_events);
    count({"whyrss_missed_snapshots", Type::counter, "Snapshots that a process asked for, and did not get in time."},
          figures_.missed_snapshots);
    count({"whyrss_recording_bytes", Type::gauge, "Size of the recording."}, figures_.recording_bytes);
    time({"whyrss_recording_seconds", Type::gauge, "Time since the recording began."}, figures_.recorded_s);
    time({"whyrss_collector_cpu_seconds", Type::counter, "CPU time of the collector."}, figures_.collector_cpu_s);
  }

  void of_group() {
    if (!figures_.group) return;
    const GroupFigures& group = *figures_.group;
    const std::string labels = fmt::format(R"({},cgroup="{}")", labels_, label_value(group.path));
    const auto add = [&](const Family& family, std::optional<std::int64_t> value) {
      begin(family);
      sample(labels, value);
    };
    add({"whyrss_cgroup_usage_bytes", Type::gauge, "Memory of the cgroup that limits the first process."},
        group.usage_bytes);
    add({"whyrss_cgroup_peak_bytes", Type::gauge, "The most of it since the cgroup was made."}, group.peak_bytes);
    add({"whyrss_cgroup_limit_bytes", Type::gauge, "Its limit."}, group.limit_bytes);
  }

  const LiveFigures& figures_;
  MetricsFormat format_;
  std::string labels_, text_;
  Family family_{};
  bool has_begun_ = false;
};

}  // namespace

std::string render_metrics(const LiveFigures& figures, MetricsFormat format) { return Text(figures, format).render(); }

}  // namespace whyrss
