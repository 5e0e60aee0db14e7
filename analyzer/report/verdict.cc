#include "report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/format.h"

namespace whyrss {
namespace {

// Nothing grew, or nothing was seen: said about the process that grew most, or the first.
Verdict quiet_verdict(const View& view) {
  Verdict verdict;
  verdict.severity = Severity::ok;
  const ProcessView* largest = nullptr;
  for (const ProcessView& process : view.processes)
    if (process.walked && (largest == nullptr || process.rss.growth() > largest->rss.growth())) largest = &process;
  if (largest == nullptr) {
    if (!view.processes.empty()) verdict.pid = view.processes.front().account->pid;
    verdict.id = "not-seen";
    verdict.severity = Severity::info;
    verdict.headline = "no memory was read: the program ended before whyrss could look, or it was not allowed to";
    verdict.why = "A process is looked at first soon after its start.";
    verdict.advice = "Record a longer run; `whyrss doctor` says what this machine allows.";
    return verdict;
  }
  const std::int64_t growth = largest->rss.growth();
  verdict.id = "steady";
  verdict.pid = largest->account->pid;
  verdict.bytes = growth;
  // Of an incomplete recording nobody knows what came after.
  const bool complete = view.recording->info.complete;
  if (!complete) verdict.severity = Severity::info;
  verdict.headline = fmt::format("nothing grew worth naming{} (largest growth of a process: {})",
                                 complete ? "" : " in what was recorded", size_text(growth));
  verdict.why = "No cause of memory grew by 8 MiB or more in this interval.";
  verdict.advice = "Nothing to do.";
  verdict.evidence["largest_process_growth_bytes"] = growth;
  return verdict;
}

}  // namespace

std::string_view slug(Severity severity) {
  switch (severity) {
    case Severity::ok:
      return "ok";
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::problem:
      return "problem";
  }
  return "info";
}

std::vector<Verdict> find_verdicts(const View& view) {
  std::vector<Verdict> verdicts;
  for (const VerdictRule& rule : verdict_rules()) rule.apply(view, verdicts);
  if (verdicts.empty()) verdicts.push_back(quiet_verdict(view));

  std::map<int, std::size_t> place;
  for (const ProcessView& process : view.processes) place.try_emplace(process.account->pid, place.size());
  const auto key = [&](const Verdict& verdict) {
    const auto at = verdict.pid ? place.find(*verdict.pid) : place.end();
    return at == place.end() ? place.size() : at->second;
  };
  std::stable_sort(verdicts.begin(), verdicts.end(), [&](const Verdict& a, const Verdict& b) {
    return key(a) != key(b) ? key(a) < key(b) : a.severity != b.severity ? a.severity < b.severity : a.bytes > b.bytes;
  });
  return verdicts;
}

}  // namespace whyrss
