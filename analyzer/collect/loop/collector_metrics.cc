// What the collector knows of the processes now, for those who watch it while a recording goes on.
#include <algorithm>

#include "collect/loop/collector.h"
#include "support/clock.h"

namespace whyrss {

void Collector::serve_metrics() {
  setup_.metrics.serve(monotonic_ns(), [this] { return live_figures(); });
}

LiveFigures Collector::live_figures() {
  const Manifest& manifest = setup_.manifest;
  LiveFigures figures;
  figures.host = manifest.host;
  figures.recording = setup_.directory.path;
  figures.recorded_s = static_cast<double>(monotonic_ns() - manifest.started_ns) / 1e9;
  figures.collector_cpu_s = static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID)) / 1e9;
  figures.dropped_events = static_cast<std::int64_t>(setup_.pool.view().header->dropped_records.load());
  figures.missed_snapshots = missed_by_ended_;
  figures.recording_bytes = static_cast<std::int64_t>(bytes_of_ended_);
  figures.seen_processes = static_cast<std::int64_t>(followed_.size() + ended_.size());
  for (const auto& [key, followed] : followed_) {
    figures.missed_snapshots += missed_snapshots(followed);
    figures.recording_bytes += static_cast<std::int64_t>(followed.process->recorded_bytes());
  }
  figures.group = group_figures();
  add_processes(figures);
  return figures;
}

std::int64_t Collector::missed_snapshots(const Followed& followed) const {
  if (followed.slot == trace::kNoSlot) return 0;
  return static_cast<std::int64_t>(setup_.pool.view().slots[followed.slot].walks_missed.load());
}

void Collector::add_processes(LiveFigures& figures) {
  std::vector<LiveProcess> living;
  for (const auto& [key, followed] : followed_) {
    const ProcessFollow& process = *followed.process;
    if (followed.has_ended || process.pid() <= 0) continue;
    const auto since_start_ns = process.born_ns() - setup_.manifest.started_ns;
    living.push_back({.key = key,
                      .pid = process.pid(),
                      .born_s = std::max(0.0, static_cast<double>(since_start_ns) / 1e9),
                      .rss_pages = process.rss_pages()});
    if (followed.slot == trace::kNoSlot) continue;
    const trace::ProcessSlot& slot = setup_.pool.view().slots[followed.slot];
    if (slot.liveness.load() != 0) living.back().heap_net_bytes = slot.live_bytes.load();  // else it is not counted
  }
  std::ranges::stable_sort(living, std::ranges::greater{}, &LiveProcess::rss_pages);
  const std::size_t listed = std::min(living.size(), kMostProcesses);
  OtherFigures& others = figures.others;
  others.heap_net_bytes = 0;
  for (std::size_t i = listed; i < living.size(); ++i) {
    ++others.process_count;
    others.rss_bytes += static_cast<std::int64_t>(living[i].rss_pages) * setup_.manifest.page_bytes;
    if (others.heap_net_bytes && living[i].heap_net_bytes)
      *others.heap_net_bytes += *living[i].heap_net_bytes;
    else
      others.heap_net_bytes.reset();
  }
  living.resize(listed);
  figures.processes = live_reader_.read(living, [this] { poll_between_walks(); });
}

std::optional<GroupFigures> Collector::group_figures() const {
  const auto target = by_pid_.find(setup_.target);
  const auto of_target = target == by_pid_.end() ? followed_.begin() : followed_.find(target->second);
  if (of_target == followed_.end() || !of_target->second.process->cgroup()) return std::nullopt;
  const CgroupMemory& group = *of_target->second.process->cgroup();
  GroupFigures figures{.path = group.path, .limit_bytes = group.limit_bytes};
  const CgroupFigures read = read_figures(group);
  const auto take = [&](const char* name, std::optional<std::int64_t>& figure) {
    if (const auto found = read.find(name); found != read.end()) figure = found->second;
  };
  take("usage_bytes", figures.usage_bytes);
  take("peak_bytes", figures.peak_bytes);
  return figures;
}

}  // namespace whyrss
