#include "report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/format.h"
#include "report/verdict_thresholds.h"

namespace whyrss {
namespace {

// Whether any figure at the interval's end can differ from that at its beginning.
bool was_looked_at(const View& view) {
  for (const ProcessAccount& process : view.recording->processes) {
    const Interval interval = interval_of(process, view.interval);
    for (const Account& account : process.accounts)
      if (account.time_s > interval.from_s && account.time_s <= interval.to_s) return true;
  }
  return false;
}

// What is there anyway, and is ours: no growth of the program.
bool is_of_program(Cause cause) { return cause != Cause::fork_shared && cause != Cause::whyrss; }

std::int64_t own_growth(const ProcessView& process) {
  std::int64_t growth = 0;
  for (const CauseView& cause : process.causes)
    if (is_of_program(cause.cause)) growth += cause.rss.growth();
  return growth;
}

// No rule has anything to say about it, and yet RSS grew by it: what is free beside the live blocks of a large heap.
Verdict slack_growth(const ProcessView& process, const CauseView& slack) {
  Verdict verdict{.id = "cause-growth", .pid = process.account->pid, .bytes = slack.rss.growth()};
  verdict.headline = fmt::format("{} {}; {} of it are little for this heap", size_text(slack.rss.growth()),
                                 info(slack.cause).title, size_text(slack.rss.last));
  verdict.why = "Free bytes on pages that also hold live blocks. Every heap from which something was freed has some.";
  verdict.advice = "Nothing to mend: in proportion to what is live there.";
  verdict.evidence["cause"] = info(slack.cause).slug;
  verdict.evidence["growth_bytes"] = slack.rss.growth();
  return verdict;
}

constexpr std::string_view kRecordAgain = "Record it again.";

// Nothing grew, or nothing was seen: said about the process that grew most, or the first.
Verdict quiet_verdict(const View& view) {
  Verdict verdict;
  verdict.severity = Severity::ok;
  const RecordingInfo& recording = view.recording->info;
  const std::string why_incomplete = recording.incomplete_why.empty() ? "" : ": " + printable(recording.incomplete_why);
  const ProcessView* largest = nullptr;
  for (const ProcessView& process : view.processes)
    if (process.walked && (largest == nullptr || own_growth(process) > own_growth(*largest))) largest = &process;
  if (largest == nullptr) {
    if (!view.processes.empty()) verdict.pid = view.processes.front().account->pid;
    verdict.id = "not-seen";
    verdict.severity = Severity::info;
    verdict.headline = "no memory was read: the program ended before whyrss could look, or it was not allowed to";
    verdict.why = "A process is looked at first soon after its start.";
    verdict.advice = "Record a longer run; `whyrss doctor` says what this machine allows.";
    if (!recording.complete) {
      verdict.headline = "no memory was read: the recording is incomplete" + why_incomplete;
      verdict.advice = std::string(kRecordAgain);
    }
    return verdict;
  }
  if (!was_looked_at(view)) {
    verdict.id = "not-seen";
    verdict.severity = Severity::info;
    verdict.pid = largest->account->pid;
    verdict.headline = "nobody looked within this interval: what grew in it is not known";
    verdict.why =
        "A look follows the growth of a process, and the beginning and the end of a phase, as far as the collector's "
        "budget goes.";
    verdict.advice = "Ask about a longer interval, or call whyrss.snapshot() in the program where it matters.";
    return verdict;
  }
  for (const ProcessView& process : view.processes)
    if (const CauseView* slack = process.find(Cause::heap_slack);
        slack != nullptr && is_worth_naming(slack->rss.growth(), process))
      return slack_growth(process, *slack);
  const std::int64_t growth = own_growth(*largest);
  verdict.id = "steady";
  verdict.pid = largest->account->pid;
  verdict.bytes = growth;
  // Of an incomplete recording nobody knows what came after.
  const bool complete = recording.complete;
  if (!complete) verdict.severity = Severity::info;
  verdict.headline = fmt::format("nothing grew worth naming{} (largest growth of a process: {})",
                                 complete ? "" : " in what was recorded", size_text(growth));
  verdict.why = "No cause of memory grew by 8 MiB or more in this interval.";
  verdict.advice = complete ? "Nothing to do."
                            : fmt::format("The recording is incomplete{}; what came after is not known. {}",
                                          why_incomplete, kRecordAgain);
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
    const bool problem_a = a.severity == Severity::problem, problem_b = b.severity == Severity::problem;
    if (problem_a != problem_b) return problem_a;
    return key(a) != key(b) ? key(a) < key(b) : a.severity != b.severity ? a.severity < b.severity : a.bytes > b.bytes;
  });
  return verdicts;
}

}  // namespace whyrss
