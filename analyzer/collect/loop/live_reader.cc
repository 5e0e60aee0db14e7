#include "collect/loop/live_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "collect/read/process_presence.h"
#include "procfs/process_stat.h"
#include "procfs/smaps.h"
#include "support/clock.h"
#include "support/file.h"
#include "support/printable.h"
#include "support/proc_path.h"
#include "support/text.h"

namespace whyrss {
namespace {

// smaps_rollup holds the mmap lock of the process, for 7 ms per GiB: the largest are left alone.
constexpr std::uint64_t kMostTotalsPages = 4ULL * 1024 * 1024 * 1024 / 4096;
// Totals are read for at most this part of a core, in one go for so long, and kept for so long.
constexpr std::int64_t kTotalsCosts = 100;
constexpr std::int64_t kTotalsInOneGoNs = 50'000'000;
constexpr std::int64_t kTotalsKeptNs = 10'000'000'000;
constexpr std::int64_t kKiB = 1024;

std::string label_of(const LiveProcess& process) {
  const auto command = read_line_file(proc_path(process.pid, "cmdline"));
  const std::vector<std::string> words = command ? split(*command, '\0') : std::vector<std::string>{};
  return fmt::format("{} (pid {})", program_name(words, read_link(proc_path(process.pid, "exe"))), process.key.pid);
}

std::optional<ProcessFigures> read_one(const LiveProcess& process) {
  const auto status = read_file(proc_path(process.pid, "status"));
  if (!status || start_ticks_of(process.pid) != process.key.start_ticks) return std::nullopt;
  const auto bytes = [&](std::string_view name) {
    auto kilos = status_value(*status, name);
    if (kilos) *kilos *= kKiB;
    return kilos;
  };
  ProcessFigures figures{.pid = process.key.pid, .born_s = process.born_s, .label = label_of(process)};
  figures.rss_bytes = bytes("VmRSS");
  if (!figures.rss_bytes) return std::nullopt;  // it has given its memory back
  figures.rss_peak_bytes = bytes("VmHWM");
  figures.anon_bytes = bytes("RssAnon");
  figures.file_bytes = bytes("RssFile");
  figures.shmem_bytes = bytes("RssShmem");
  figures.swap_bytes = bytes("VmSwap");
  figures.heap_net_bytes = process.heap_net_bytes;
  return figures;
}

}  // namespace

std::vector<ProcessFigures> LiveReader::read(const std::vector<LiveProcess>& processes,
                                             const std::function<void()>& between) {
  read_totals(processes, between);
  std::vector<ProcessFigures> all;
  for (const LiveProcess& process : processes) {
    auto figures = read_one(process);
    if (!figures) continue;
    if (const auto totals = totals_.find(process.key); totals != totals_.end()) {
      figures->pss_bytes = totals->second.pss_bytes;
      figures->uss_bytes = totals->second.uss_bytes;
    }
    all.push_back(std::move(*figures));
  }
  return all;
}

std::int64_t LiveReader::read_ns(const LiveProcess& process) const {
  const auto known = totals_.find(process.key);
  return known == totals_.end() ? 0 : known->second.read_ns;
}

// Those first that were not read for longest.
void LiveReader::read_totals(const std::vector<LiveProcess>& processes, const std::function<void()>& between) {
  const std::int64_t begin_ns = monotonic_ns();
  std::erase_if(totals_, [&](const auto& entry) { return begin_ns - entry.second.read_ns >= kTotalsKeptNs; });
  if (begin_ns < next_totals_ns_) return;
  std::vector<LiveProcess> order = processes;
  std::ranges::stable_sort(order, {}, [this](const LiveProcess& process) { return read_ns(process); });
  std::int64_t spent_ns = 0;
  for (const LiveProcess& process : order) {
    if (process.rss_pages > kMostTotalsPages || spent_ns > kTotalsInOneGoNs) continue;
    const std::int64_t begin_cpu_ns = thread_cpu_ns();
    const auto text = read_file(proc_path(process.pid, "smaps_rollup"));
    if (const auto sums = text ? parse_smaps_rollup(*text) : std::nullopt)
      totals_[process.key] = {.read_ns = begin_ns, .pss_bytes = sums->pss_bytes, .uss_bytes = sums->uss_bytes()};
    else
      totals_.erase(process.key);
    spent_ns += thread_cpu_ns() - begin_cpu_ns;
    between();
  }
  next_totals_ns_ = begin_ns + spent_ns * kTotalsCosts;
}

}  // namespace whyrss
