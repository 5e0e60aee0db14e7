#include "report/fork_cow_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/blame.h"
#include "report/blame_sums.h"
#include "report/format.h"
#include "report/verdict_thresholds.h"

namespace whyrss {
namespace {

// Workers whose copies differ by less than this are told by their mean.
constexpr double kAlikeRatio = 1.1;

// Inherited memory that holds CPython objects: small ones lie in pymalloc's arenas, which Python code
// made grow; those over 512 bytes in malloc's [heap].
std::vector<const SiteView*> object_sites(const View& view, const ProcessView& process) {
  std::vector<const SiteView*> sites;
  const CauseView* cause = process.find(Cause::fork_cow);
  if (cause == nullptr || !process.account->python) return sites;
  for (const SiteView& site : cause->sites)
    if (site.mapping == "[heap]" || is_python_object(view.recording->stacks, site.stack)) sites.push_back(&site);
  return sites;
}

struct Workers {
  std::vector<int> pids;
  std::vector<std::int64_t> copied;
  std::vector<const SiteView*> sites;
  std::int64_t inherited_peak = 0;  // of one worker, shared and copied
};

std::string workers_text(const Workers& workers) {
  const auto [least, most] = std::minmax_element(workers.copied.begin(), workers.copied.end());
  if (workers.copied.size() == 1)
    return fmt::format("1 worker (pid {}) copied {} of what it inherited", workers.pids.front(), size_text(*most));
  std::int64_t sum = 0;
  for (const std::int64_t bytes : workers.copied) sum += bytes;
  const auto count = static_cast<std::int64_t>(workers.copied.size());
  const bool alike = static_cast<double>(*most) <= kAlikeRatio * static_cast<double>(*least);
  const std::string each =
      alike ? size_text(sum / count) : fmt::format("{} to {}", size_text(*least), size_text(*most));
  return fmt::format("{} workers copied {} each of what they inherited", count, each);
}

Verdict verdict_of(const View& view, std::optional<int> parent, const Workers& workers) {
  const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, workers.sites);
  std::string made;
  for (const LineGrowth& line : lines) {
    if (line.line.empty()) continue;
    made = line.number > 0 ? fmt::format("; objects made at {}:{}", base_name(line.file), line.number)
                           : "; objects made in " + line.line;
    break;
  }
  Verdict verdict{.id = "fork-cow-refcount", .severity = Severity::warning, .pid = parent};
  for (const std::int64_t bytes : workers.copied) verdict.bytes += bytes;
  verdict.headline = fmt::format("{} (fork COW{})", workers_text(workers), made);
  verdict.why = fmt::format(
      "CPython writes a reference count into every object it reads, so reading inherited objects copies their pages. "
      "RSS does not show it, PSS and USS do. It stops when all that a worker inherited ({}) is copied.",
      size_text(workers.inherited_peak));
  verdict.advice =
      "Keep such data in a few large buffers instead of many objects (numpy array, torch tensor, "
      "multiprocessing.shared_memory, a mapped file), or let each worker load only its part. gc.freeze() does not "
      "help.";
  verdict.covered_pids = workers.pids;
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < workers.pids.size(); ++i)
    list.push_back({{"pid", workers.pids[i]}, {"copied_bytes", workers.copied[i]}});
  verdict.evidence["workers"] = std::move(list);
  verdict.evidence["copied_bytes"] = verdict.bytes;
  verdict.evidence["inherited_bytes_per_worker"] = workers.inherited_peak;
  auto line_list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < lines.size() && i < 5; ++i)
    line_list.push_back({{"line", lines[i].line},
                         {"file", lines[i].file},
                         {"number", lines[i].number},
                         {"copied_bytes", lines[i].bytes}});
  verdict.evidence["allocated_at"] = std::move(line_list);
  return verdict;
}

}  // namespace

bool is_refcount_copy(const View& view, const ProcessView& process) {
  return process.account->born_by_fork && is_worth_naming(sum_growth(object_sites(view, process)), process);
}

void fork_cow_refcount(const View& view, std::vector<Verdict>& verdicts) {
  std::map<std::optional<int>, Workers> by_parent;
  for (const ProcessView& process : view.processes) {
    if (!is_refcount_copy(view, process)) continue;
    Workers& workers = by_parent[process.account->parent];
    const std::vector<const SiteView*> sites = object_sites(view, process);
    workers.pids.push_back(process.account->pid);
    workers.copied.push_back(sum_growth(sites));
    workers.sites.insert(workers.sites.end(), sites.begin(), sites.end());
    std::int64_t inherited = 0;
    for (const Cause cause : {Cause::fork_cow, Cause::fork_shared})
      if (const CauseView* found = process.find(cause)) inherited += found->rss.last;
    workers.inherited_peak = std::max(workers.inherited_peak, inherited);
  }
  for (const auto& [parent, workers] : by_parent) verdicts.push_back(verdict_of(view, parent, workers));
}

}  // namespace whyrss
