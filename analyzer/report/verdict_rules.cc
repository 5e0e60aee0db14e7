#include <fmt/format.h>

#include <algorithm>

#include "report/blame.h"
#include "report/blame_sums.h"
#include "report/fork_cow_rule.h"
#include "report/format.h"
#include "report/retained_view_rule.h"
#include "report/verdict.h"
#include "report/verdict_thresholds.h"

namespace whyrss {
namespace {

// One file is named alone when it makes up this share of the growth, one line likewise.
constexpr double kDominantShare = 0.8;
// Mappings and lines listed as evidence: enough to act on.
constexpr std::size_t kEvidenceEntries = 5;

bool dominates(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) >= kDominantShare * static_cast<double>(whole);
}

std::vector<const SiteView*> pointers(const std::vector<SiteView>& sites) {
  std::vector<const SiteView*> result;
  for (const SiteView& site : sites) result.push_back(&site);
  return result;
}

// The first entry that names somebody; growth that nobody was seen to cause stands under "".
const LineGrowth* top_named(const std::vector<LineGrowth>& lines) {
  for (const LineGrowth& line : lines)
    if (!line.line.empty()) return &line;
  return nullptr;
}

nlohmann::ordered_json line_evidence(const std::vector<LineGrowth>& lines) {
  auto list = nlohmann::ordered_json::array();
  for (const LineGrowth& line : lines) {
    if (list.size() == kEvidenceEntries) break;
    list.push_back({{"line", line.line}, {"file", line.file}, {"number", line.number}, {"growth_bytes", line.bytes}});
  }
  return list;
}

// " (kept at a.py:3 in f)", or "" when nobody was seen.
std::string kept_where(const std::vector<LineGrowth>& lines, std::int64_t whole, const char* verb) {
  const LineGrowth* top = top_named(lines);
  if (top == nullptr) return "";
  for (const LineGrowth& line : lines)
    if (line.line.empty() && line.bytes * 2 > whole) return " (no line was seen for most of it)";
  const std::string placed = fmt::format("{} {}", verb, top->number > 0 ? "at" : "in");
  if (dominates(top->bytes, whole)) return fmt::format(" ({} {})", placed, top->line);
  return fmt::format(" (most {} {}: {})", placed, top->line, size_text(top->bytes));
}

void file_cache_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* cause = process.find(Cause::file_cache);
    if (cause == nullptr || !is_worth_naming(cause->rss.growth(), process)) continue;
    const std::vector<MappingGrowth> files = growth_by_mapping(cause->sites);
    if (files.empty()) continue;
    const MappingGrowth& top = files.front();
    const std::int64_t growth = cause->rss.growth();
    const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, top.sites);
    Verdict verdict{.id = "file-cache-growth", .severity = Severity::ok, .pid = process.account->pid};
    const std::string name = printable(base_name(top.mapping));
    if (dominates(top.bytes, growth)) {
      verdict.bytes = top.bytes;
      verdict.headline = fmt::format("{} file cache of {}{}: reclaimable, not a leak", size_text(top.bytes), name,
                                     kept_where(lines, top.bytes, "mapped"));
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
    verdicts.push_back(std::move(verdict));
  }
}

void heap_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* cause = process.find(Cause::heap_live);
    if (cause == nullptr || !is_worth_naming(cause->rss.growth(), process)) continue;
    const std::int64_t growth = cause->rss.growth();
    if (dominates(retained_by_views(view, process), growth)) continue;  // retained-view says more about it
    const StackTable& stacks = view.recording->stacks;
    std::int64_t object_growth = 0;
    for (const SiteView& site : cause->sites)
      if (process.account->python && is_python_object(stacks, site.stack)) object_growth += site.growth;
    const bool objects = object_growth * 2 > growth;
    const std::vector<LineGrowth> lines = growth_by_line(stacks, pointers(cause->sites));
    Verdict verdict{.id = "heap-growth", .severity = Severity::info, .pid = process.account->pid, .bytes = growth};
    verdict.headline = fmt::format("{} {}{}", size_text(growth), objects ? "live Python objects" : "live heap",
                                   kept_where(lines, growth, objects ? "kept" : "allocated"));
    if (top_named(lines) == nullptr) verdict.headline += " (no line was seen)";
    verdict.why =
        objects ? "The program allocated this for Python objects and it is still in the process; the line is where "
                  "the memory was asked for."
                : "The program allocated this and it is still in the process; the line is where it was asked for.";
    verdict.why +=
        " This version counts whole heap regions: free bytes inside them that the allocator keeps are not told apart.";
    verdict.advice =
        "Expected if the program needs this data at once. If it should have been freed, look for what still refers "
        "to it from that line on (a list or cache that only grows).";
    verdict.evidence["growth_bytes"] = growth;
    verdict.evidence["python_object_growth_bytes"] = object_growth;
    verdict.evidence["estimate"] = cause->estimate;
    verdict.evidence["lines"] = line_evidence(lines);
    verdicts.push_back(std::move(verdict));
  }
}

// What grew and has no verdict of its own yet: the answer still comes first.
void cause_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    for (const CauseView& cause : process.causes) {
      if (cause.cause == Cause::file_cache || cause.cause == Cause::heap_live || cause.cause == Cause::fork_shared ||
          cause.cause == Cause::whyrss || !is_worth_naming(cause.rss.growth(), process))
        continue;
      if (cause.cause == Cause::fork_cow && is_refcount_copy(view, process)) continue;
      const std::int64_t growth = cause.rss.growth();
      const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(cause.sites));
      Verdict verdict{.id = "cause-growth", .severity = Severity::info, .pid = process.account->pid, .bytes = growth};
      const bool unknown = cause.cause == Cause::unknown;
      verdict.headline = size_text(growth) + " ";
      verdict.headline += unknown ? "that no recorded call explains" : std::string(info(cause.cause).title);
      verdict.headline += kept_where(lines, growth, cause.cause == Cause::fork_cow ? "allocated" : "mapped");
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

// What was there at the peak and is gone at the end: a program that frees everything before it exits, as
// CPython does, has no growth left to speak of.
void gone_since_peak(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    for (const CauseView& cause : process.causes) {
      const std::int64_t gone = cause.at_peak - std::max(cause.rss.first, cause.rss.last);
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

bool is_worth_naming(std::int64_t growth_bytes, const ProcessView& process) {
  const auto process_growth = static_cast<double>(std::max<std::int64_t>(process.rss.growth(), 0));
  return growth_bytes >= kNamedGrowthBytes && static_cast<double>(growth_bytes) >= kNamedGrowthShare * process_growth;
}

const std::vector<VerdictRule>& verdict_rules() {
  static const std::vector<VerdictRule> rules{
      {"file-cache-growth", file_cache_growth}, {"heap-growth", heap_growth},
      {"fork-cow-refcount", fork_cow_refcount}, {"retained-view", retained_view},
      {"cause-growth", cause_growth},           {"gone-since-peak", gone_since_peak},
  };
  return rules;
}

}  // namespace whyrss
