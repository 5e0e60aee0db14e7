#include "report/verdicts/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "model/recording_state.h"
#include "report/verdicts/next_steps.h"
#include "report/view/line_text.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Whether any figure at the interval's end can differ from that at its beginning.
bool was_walked(const View& view) {
  for (const ProcessAccount& process : view.recording->processes) {
    const Interval interval = interval_of(process, view.interval);
    for (const Account& account : process.accounts)
      if (account.time_s > interval.from_s && account.time_s <= interval.to_s) return true;
  }
  return false;
}

// Less than this is not missed where the figures of a process are compared with the growth of its RSS.
constexpr std::int64_t kBesidesBytes = std::int64_t{1} << 20U;

// What is there anyway, and is ours: no growth of the program.
bool is_of_program(Cause cause) { return cause != Cause::fork_shared && cause != Cause::whyrss; }

std::int64_t own_growth(const ProcessView& process) {
  std::int64_t growth = 0;
  for (const CauseView& cause : process.causes)
    if (is_of_program(cause.cause)) growth += cause.rss.growth();
  return growth;
}

// ", besides 3.1 MiB of whyrss and 20 MiB inherited": what RSS has more of than own_growth() says.
std::string besides_text(const ProcessView& process) {
  constexpr std::array<std::pair<Cause, std::string_view>, 2> kBesides{
      {{Cause::whyrss, "of whyrss"}, {Cause::fork_shared, "inherited"}}};
  std::string text;
  for (const auto& [cause, what] : kBesides) {
    const CauseView* found = process.find(cause);
    if (found == nullptr || found->rss.growth() < kBesidesBytes) continue;
    text += fmt::format("{} {} {}", text.empty() ? ", besides" : " and", size_text(found->rss.growth()), what);
  }
  return text;
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

// Nothing grew, or no memory was read: said about the process that grew most, or the first.
Verdict quiet_verdict(const View& view) {
  Verdict verdict;
  verdict.severity = Severity::ok;
  const RecordingInfo& recording = view.recording->info;
  const std::string why_incomplete = recording.incomplete_why.empty() ? "" : ": " + printable(recording.incomplete_why);
  const bool is_running = recording.incomplete_why == kStillRunning;
  const std::string what_then = is_running ? "A later report of it says more." : std::string(next_steps(view).again);
  const ProcessView* largest = nullptr;
  for (const ProcessView& process : view.processes)
    if (process.walked && (largest == nullptr || own_growth(process) > own_growth(*largest))) largest = &process;
  if (largest == nullptr) {
    if (!view.processes.empty()) verdict.pid = view.processes.front().account->pid;
    verdict.id = "not-seen";
    verdict.severity = Severity::info;
    verdict.headline = "no memory was read: the program ended before the first snapshot, or whyrss may not read it";
    verdict.why = "The first snapshot of a process is taken soon after its start.";
    verdict.advice = next_steps(view).longer;
    if (!recording.complete) {
      verdict.headline = "no memory was read: the recording is incomplete" + why_incomplete;
      verdict.advice = what_then;
    }
    return verdict;
  }
  const auto rests = [](const ProcessView& process) {
    return is_moment(process.interval) && process.rss.growth() == 0;
  };
  if (is_moment(view.interval) && std::ranges::all_of(view.processes, rests)) {
    verdict.id = "steady";
    verdict.pid = largest->account->pid;
    verdict.headline =
        fmt::format("the interval is a single moment, {:.3f} s, in which nothing can grow", view.interval.to_s);
    verdict.why = "The figures are of what was there then.";
    verdict.advice = "Give --from and --to different times.";
    return verdict;
  }
  if (!was_walked(view)) {
    verdict.id = "not-seen";
    verdict.severity = Severity::info;
    verdict.pid = largest->account->pid;
    verdict.headline = "no snapshot was taken within this interval: what grew in it is not known";
    verdict.why =
        "A snapshot follows the growth of a process, and the beginning and the end of a phase, as far as the "
        "collector's budget allows.";
    verdict.advice = fmt::format("Ask about a longer interval, or call whyrss.snapshot() in the {} where it matters.",
                                 view.in_notebook ? "cell" : "program");
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
  // What came after an incomplete recording is not known; what came after a part of it is.
  const bool complete = recording.complete || view.interval.to_s < recording.duration_s;
  if (!complete) verdict.severity = Severity::info;
  const bool all_fell = growth < 0 && view.processes.size() == 1;
  if (all_fell)
    verdict.headline = fmt::format("nothing grew: {} less than at the beginning", size_text(-growth));
  else
    verdict.headline = fmt::format("nothing grew worth naming{} (largest growth of a process: {}{})",
                                   complete ? "" : " in what was recorded", size_text(growth), besides_text(*largest));
  verdict.why = "No cause of memory grew by 8 MiB or more in this interval.";
  verdict.advice = complete ? "Nothing to do."
                            : fmt::format("The recording is incomplete{}; what came after is not known. {}",
                                          why_incomplete, what_then);
  verdict.evidence["largest_process_growth_bytes"] = growth;
  return verdict;
}

// In which order verdicts stand (analyzer/docs/verdicts.md).
enum class Place : std::uint8_t { trouble, grows, largest, remark };

Place place_of(const Verdict& verdict) {
  constexpr std::array kTroubles{"killed", "near-limit", "limit-rereading",
                                 "descriptor-growth"};  // of which the bytes are not the point
  if (verdict.severity == Severity::problem || std::ranges::find(kTroubles, verdict.id) != kTroubles.end())
    return Place::trouble;
  // What heap-growth says is live until then, once more.
  const bool was_live = verdict.id == "heap-retained" && verdict.evidence.value("was_live", false);
  if (was_live || is_remark(verdict)) return Place::remark;
  return verdict.bytes_per_s > 0 ? Place::grows : Place::largest;
}

// What has gone again says nothing of what is there: it comes first where it is more than twice as much.
std::int64_t weight_of(const Verdict& verdict) {
  constexpr std::int64_t kGonePart = 2;
  return verdict.id == "gone-since-peak" ? verdict.bytes / kGonePart : verdict.bytes;
}

// Memory of a process that is padding of huge pages for the most part: why it is there comes before who allocated it.
void put_padding_first(std::vector<Verdict>& verdicts) {
  for (auto padding = verdicts.begin(); padding != verdicts.end(); ++padding) {
    if (padding->id != "huge-page-padding") continue;
    const auto explained = std::find_if(verdicts.begin(), padding, [&](const Verdict& other) {
      return other.pid == padding->pid && place_of(other) != Place::trouble && dominates(padding->bytes, other.bytes);
    });
    if (explained != padding) std::rotate(explained, padding, std::next(padding));
  }
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

bool is_remark(const Verdict& verdict) {
  constexpr std::array kRemarks{"library-code", "imports", "rss-double-counted"};
  return std::ranges::find(kRemarks, verdict.id) != kRemarks.end();
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
    if (place_of(a) != place_of(b)) return place_of(a) < place_of(b);
    if (a.bytes_per_s != b.bytes_per_s && place_of(a) == Place::grows) return a.bytes_per_s > b.bytes_per_s;
    return weight_of(a) != weight_of(b) ? weight_of(a) > weight_of(b) : key(a) < key(b);
  });
  put_padding_first(verdicts);
  return verdicts;
}

}  // namespace whyrss
