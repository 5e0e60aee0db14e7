#include "report/verdicts/descriptor_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "report/view/blame.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Python's SharedMemory keeps two for each segment, mmap one, and something else may be open as well.
constexpr std::int64_t kDescriptorsPerMapping = 4;
// Half of what a process may have open: fewer are as many as a server works with at a time.
constexpr std::int64_t kManyDescriptors = 512;

struct Count {
  std::int64_t first = 0, most = 0;
  [[nodiscard]] std::int64_t growth() const { return most - first; }
};

// Nothing where only one walk was taken, or none.
std::optional<Count> count_of(const ProcessAccount& account, const std::string& name) {
  const auto first = account.counters.find(name + "_first"), last = account.counters.find(name + "_last");
  if (first == account.counters.end() || last == account.counters.end()) return std::nullopt;
  const auto peak = account.counters.find(name + "_peak");
  return Count{first->second, peak == account.counters.end() ? last->second : std::max(last->second, peak->second)};
}

// When most were open, where that was before the end: an interpreter closes much as it ends, and who is killed is not
// walked any more.
std::optional<double> counted_before_end(const ProcessAccount& account) {
  constexpr double kCountedAtEndS = 1.5;  // the collector counts once a second
  const bool has_peak = account.counters.contains("descriptors_peak_ms");
  const auto counted = account.counters.find(has_peak ? "descriptors_peak_ms" : "descriptors_last_ms");
  if (counted == account.counters.end() || !account.ended_s) return std::nullopt;
  const double counted_s = static_cast<double>(counted->second) / 1000;
  return counted_s + kCountedAtEndS < *account.ended_s ? std::optional(counted_s) : std::nullopt;
}

struct MappingLine {
  std::string line;
  std::int64_t mappings = 0, bytes = 0;
};

// The line with the most mappings of its own, of files and shared memory.
MappingLine top_mapper(const View& view, const ProcessView& process) {
  std::map<std::string, std::set<std::string>> mappings;
  std::map<std::string, std::int64_t> bytes;
  for (const Cause cause : {Cause::shared_memory, Cause::file_cache}) {
    const CauseView* found = process.find(cause);
    if (found == nullptr) continue;
    for (const SiteView& site : found->sites) {
      const std::string line = blamed_line(view.recording->stacks, site.stack);
      if (line.empty() || site.resident <= 0) continue;
      mappings[line].insert(site.mapping());
      bytes[line] += site.resident;
    }
  }
  MappingLine top;
  for (const auto& [line, names] : mappings)
    if (const auto count = static_cast<std::int64_t>(names.size()); count > top.mappings)
      top = {line, count, bytes[line]};
  return top;
}

}  // namespace

void descriptor_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const ProcessAccount& account = *process.account;
    const auto descriptors = count_of(account, "descriptors"), mappings = count_of(account, "mappings");
    const bool whole = view.interval.from_s <= account.born_s;
    if (!whole || !descriptors || descriptors->growth() < kNamedDescriptorGrowth) continue;
    const std::optional<double> counted_s = counted_before_end(account);
    const MappingLine top = top_mapper(view, process);
    const bool reported = top.mappings * kDescriptorsPerMapping >= descriptors->growth();
    Verdict verdict{.id = "descriptor-growth", .severity = Severity::warning, .pid = account.pid};
    if (!reported && descriptors->most < kManyDescriptors) verdict.severity = Severity::info;
    verdict.bytes = reported ? top.bytes : 0;
    verdict.headline = fmt::format(
        "{} files {}, {} of them since its start{}", descriptors->most,
        counted_s ? "were open at " + seconds_text(*counted_s) : "are open", descriptors->growth(),
        reported ? fmt::format("; {} mapped at {} hold {}", top.mappings, printable(top.line), size_text(top.bytes))
                 : "");
    verdict.why =
        "Each open file, socket or piece of shared memory takes a descriptor, however small it is. A process may have "
        "1024 of them unless its limit was raised (ulimit -n), and fails with \"Too many open files\" beyond.";
    verdict.advice =
        reported
            ? "Close and unmap what was used, or keep a copy of the part that is needed: a view of a batch that came "
              "in shared memory (numpy() of a DataLoader's tensor) keeps its segment and descriptor."
            : "They were counted once a second: a server has as many open as it works with at a time. If they grow in "
              "number, close what was used; ls -l /proc/PID/fd of the running process shows what they are.";
    verdict.evidence["descriptors"] = {{"first", descriptors->first}, {"most", descriptors->most}};
    if (counted_s) verdict.evidence["counted_s"] = *counted_s;
    if (mappings) verdict.evidence["mappings"] = {{"first", mappings->first}, {"last", mappings->most}};
    if (reported)
      verdict.evidence["mapped_at"] = {{"line", top.line}, {"mappings", top.mappings}, {"resident_bytes", top.bytes}};
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace whyrss
