#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/blame.h"
#include "report/blame_sums.h"
#include "report/fork_cow_rule.h"
#include "report/format.h"
#include "report/heap_rules.h"
#include "report/line_text.h"
#include "report/memory_accounting.h"
#include "report/retained_view_rule.h"
#include "report/verdict.h"
#include "report/verdict_thresholds.h"

namespace whyrss {
namespace {

void file_cache_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* cause = process.find(Cause::file_cache);
    if (cause == nullptr || !is_worth_naming(cause->rss.growth(), process)) continue;
    const std::vector<MappingGrowth> files = growth_by_mapping(cause->sites);
    if (files.empty()) continue;
    const MappingGrowth& top = files.front();
    const std::int64_t growth = cause->rss.growth();
    const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, top.sites);
    const std::vector<LineGrowth> readers = growth_by_touch(view.recording->stacks, top.sites);
    Verdict verdict{.id = "file-cache-growth", .severity = Severity::ok, .pid = process.account->pid};
    const std::string name = printable(base_name(top.mapping));
    if (dominates(top.bytes, growth)) {
      verdict.bytes = top.bytes;
      verdict.headline = fmt::format("{} file cache of {}{}: reclaimable, not a leak", size_text(top.bytes), name,
                                     top_named(lines) != nullptr ? kept_where(lines, top.bytes, "mapped", "read")
                                                                 : kept_where(readers, top.bytes, "read"));
    } else {
      verdict.bytes = growth;
      verdict.headline = fmt::format("{} file cache of {} files, most of it {} ({}): reclaimable, not a leak",
                                     size_text(growth), files.size(), name, size_text(top.bytes));
    }
    verdict.why =
        "These are page-cache pages of mapped files. They count in RSS while they are mapped, but the kernel takes "
        "them back whenever memory is needed, before it kills anybody.";
    verdict.advice =
        "Nothing to fix. If a limit that counts RSS gets in the way, map the file in windows, call "
        "madvise(MADV_DONTNEED) on what was read, or have the limit count PSS or a cgroup's anonymous memory.";
    verdict.evidence["growth_bytes"] = growth;
    verdict.evidence["file_count"] = files.size();
    auto list = nlohmann::ordered_json::array();
    for (const MappingGrowth& file : files)
      if (list.size() < kEvidenceEntries) list.push_back({{"mapping", file.mapping}, {"growth_bytes", file.bytes}});
    verdict.evidence["files"] = std::move(list);
    verdict.evidence["lines"] = line_evidence(lines);
    verdict.evidence["read_by"] = line_evidence(readers);
    verdicts.push_back(std::move(verdict));
  }
}

// Told by other rules, or nobody's trouble.
bool has_own_verdict(Cause cause) {
  constexpr std::array kTold{Cause::file_cache,    Cause::heap_live,   Cause::heap_slack,
                             Cause::heap_retained, Cause::fork_shared, Cause::whyrss};
  return std::find(kTold.begin(), kTold.end(), cause) != kTold.end();
}

// What a fork child has of its own of the relocated pages of libraries and the like is what it does not share.
std::int64_t own_growth(const ProcessView& process, const CauseView& cause) {
  const bool inherited = process.account->born_by_fork && cause.cause == Cause::file_cow;
  return inherited ? std::min(cause.rss.growth(), cause.uss_growth) : cause.rss.growth();
}

// What grew and has no verdict of its own: the answer still comes first.
void cause_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    for (const CauseView& cause : process.causes) {
      const std::int64_t growth = own_growth(process, cause);
      if (has_own_verdict(cause.cause) || !is_worth_naming(growth, process)) continue;
      if (cause.cause == Cause::fork_cow && is_told_copy(view, process)) continue;
      const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(cause.sites));
      Verdict verdict{.id = "cause-growth", .severity = Severity::info, .pid = process.account->pid, .bytes = growth};
      const bool unknown = cause.cause == Cause::unknown;
      verdict.headline = size_text(growth) + " ";
      verdict.headline += unknown ? "that no recorded call explains" : std::string(info(cause.cause).title);
      verdict.headline +=
          kept_where(lines, growth, cause.cause == Cause::fork_cow ? "allocated" : "mapped", touch_verb(cause.cause));
      verdict.why = unknown ? "The memory was mapped by a process or in a way that the recording did not see."
                            : fmt::format("It comes back when: {}.", info(cause.cause).comes_back);
      verdict.advice = "See the lines of this cause in the full report.";
      verdict.evidence["cause"] = info(cause.cause).slug;
      verdict.evidence["growth_bytes"] = growth;
      verdict.evidence["lines"] = line_evidence(lines);
      verdicts.push_back(std::move(verdict));
    }
  }
}

constexpr std::array kHeapCauses{Cause::heap_live, Cause::heap_slack, Cause::heap_retained, Cause::heap_metadata};

// What left RSS after the peak. Heap that was freed and kept by the allocator has not left.
std::int64_t gone_bytes(const ProcessView& process, const CauseView& cause) {
  const std::int64_t gone = cause.at_peak - std::max(cause.rss.first, cause.rss.last);
  if (std::find(kHeapCauses.begin(), kHeapCauses.end(), cause.cause) == kHeapCauses.end()) return gone;
  std::int64_t at_peak = 0, first = 0, last = 0;
  for (const Cause part : kHeapCauses) {
    const CauseView* found = process.find(part);
    if (found == nullptr) continue;
    at_peak += found->at_peak;
    first += found->rss.first;
    last += found->rss.last;
  }
  return std::min(gone, at_peak - std::max(first, last));
}

// What was there at the peak and is gone at the end: a program that frees everything before it exits, as
// CPython does, has no growth left to speak of.
void gone_since_peak(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    for (const CauseView& cause : process.causes) {
      const std::int64_t gone = gone_bytes(process, cause);
      const bool large = gone >= kNamedGrowthBytes &&
                         static_cast<double>(gone) >= kNamedGrowthShare * static_cast<double>(process.rss.peak);
      if (!large || cause.cause == Cause::fork_shared || cause.cause == Cause::whyrss) continue;
      std::vector<SiteView> shrunk = cause.sites;
      for (SiteView& site : shrunk) site.growth = site.at_peak - site.resident;
      const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(shrunk));
      Verdict verdict{.id = "gone-since-peak", .severity = Severity::info, .pid = process.account->pid, .bytes = gone};
      verdict.headline =
          fmt::format("{} {} more at the peak (RSS {}) than at the end{}", size_text(gone), info(cause.cause).title,
                      size_text(process.rss.peak), kept_where(lines, gone, "made"));
      verdict.why = "The memory was there when RSS was largest and has been given back since, so it is no leak.";
      verdict.advice = "If the peak is the trouble (a memory limit), make this line hold less at a time.";
      verdict.evidence["cause"] = info(cause.cause).slug;
      verdict.evidence["at_peak_bytes"] = cause.at_peak;
      verdict.evidence["last_bytes"] = cause.rss.last;
      verdict.evidence["lines"] = line_evidence(lines);
      verdicts.push_back(std::move(verdict));
    }
  }
}

}  // namespace

bool is_fragmented(std::int64_t slack_bytes, std::int64_t live_bytes) {
  return static_cast<double>(slack_bytes) >= kFragmentedShare * static_cast<double>(slack_bytes + live_bytes);
}

bool is_worth_naming(std::int64_t growth_bytes, const ProcessView& process) {
  const auto process_growth = static_cast<double>(std::max<std::int64_t>(process.rss.growth(), 0));
  return growth_bytes >= kNamedGrowthBytes && static_cast<double>(growth_bytes) >= kNamedGrowthShare * process_growth;
}

const std::vector<VerdictRule>& verdict_rules() {
  static const std::vector<VerdictRule> rules{
      {"file-cache-growth", file_cache_growth},
      {"heap-growth", heap_growth},
      {"heap-retained", heap_retained},
      {"heap-fragmented", heap_fragmented},
      {"fork-cow-refcount", fork_cow_refcount},
      {"fork-cow-write", fork_cow_write},
      {"rss-double-counted", rss_double_counted},
      {"retained-view", retained_view},
      {"cause-growth", cause_growth},
      {"gone-since-peak", gone_since_peak},
  };
  return rules;
}

}  // namespace whyrss
