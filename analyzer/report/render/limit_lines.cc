// What a recording lacks, and why: said in every report for people.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>

#include "report/render/process_text.h"
#include "report/render/sections.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"

namespace whyrss {
namespace {

struct LimitText {
  std::string_view capability, text;
};

constexpr std::array<LimitText, 8> kLimits{{
    {"touch", "no page-fault samples: who made pages resident is not known, only who mapped or allocated them"},
    {"write_tracking", "no write tracking: copies since fork come from the pages' exclusive bits"},
    {"page_scan", "no PAGEMAP_SCAN: resident zero pages may be counted until smaps corrects them"},
    {"pagemap_scan", "no PAGEMAP_SCAN: resident zero pages may be counted until smaps corrects them"},
    {"pagemap", "no pagemap: causes come from smaps alone"},
    {"smaps_rollup", "no smaps_rollup: PSS is not known"},
    {"cgroup", "no memory cgroup was readable: limits are not known"},
    {"liveness", "no page liveness: free bytes inside the heap cannot be separated from live ones"},
}};

// A capability is there ("yes", "true", or a kind of it), or the text says why not.
bool works(const std::string& capability, const std::string& value) {
  return value == "yes" || value == "true" || (capability == "touch" && value == "user");
}

constexpr std::size_t kMostUnseen = 8;

// Who did something after the last walk of it, the longest first.
void add_unseen_ends(const View& view, std::vector<std::string>& lines) {
  std::vector<const ProcessAccount*> unseen;
  for (const ProcessView& process : view.processes)
    if (process.account->unseen_s.value_or(0) > 0) unseen.push_back(process.account);
  std::ranges::stable_sort(unseen, std::ranges::greater{}, &ProcessAccount::unseen_s);
  for (std::size_t i = 0; i < std::min(unseen.size(), kMostUnseen); ++i)
    lines.push_back(fmt::format("pid {} ({}): last snapshot {} before its end", unseen[i]->pid,
                                shortened(command_text(unseen[i]->command), 30), seconds_text(*unseen[i]->unseen_s)));
  if (unseen.size() > kMostUnseen)
    lines.push_back(fmt::format("{}: last snapshots over 100 ms before their ends",
                                counted(unseen.size() - kMostUnseen, "more process")));
}

}  // namespace

std::vector<std::string> loss_lines(const View& view, std::size_t top) {
  const RecordingInfo& recording = view.recording->info;
  std::vector<std::string> lines;
  if (!recording.complete)
    lines.push_back("incomplete: " +
                    (recording.incomplete_why.empty() ? "no reason known" : printable(recording.incomplete_why)));
  if (recording.lost_events > 0)
    lines.push_back(counted(recording.lost_events, "event") +
                    " lost: lines may be missing for memory allocated then; the totals are right");
  if (recording.lost_snapshots > 0)
    lines.push_back(counted(recording.lost_snapshots, "snapshot") +
                    " lost: what came and went between two snapshots is not in the report");
  for (const std::string& note : recording.notes) lines.push_back(printable(note));
  std::size_t skewed = 0;
  std::vector<std::string> of_processes;
  for (const ProcessView& process : view.processes) {
    const ProcessAccount& account = *process.account;
    const std::string who = fmt::format("pid {} ({}): ", account.pid, shortened(command_text(account.command), 30));
    if (account.lost_events > 0) of_processes.push_back(who + counted(account.lost_events, "event") + " lost");
    if (!account.traced && account.untraced_reason.empty())
      of_processes.push_back(who + "not traced, causes from the kernel alone, no lines");
    for (const std::string& note : account.notes) of_processes.push_back(who + printable(note));
    for (const Account& walk : account.accounts) skewed += walk.skewed ? 1 : 0;
  }
  keep_first(of_processes, top);
  std::ranges::move(of_processes, std::back_inserter(lines));
  if (skewed > 0)
    lines.push_back(counted(skewed, "snapshot") + " of memory that changed meanwhile: small differences to RSS");
  add_unseen_ends(view, lines);
  if (lines.empty()) lines.emplace_back("nothing; the recording is complete");
  return lines;
}

namespace {

// What the collector may spend in advance: twice collect's WalkBudget::kBurstNs, and as much again in debt.
constexpr double kUnlimitedS = 0.2, kMostBeyondS = 0.3;

// " (--overhead 3)", and why it took more than that.
std::string allowed_text(const RecordingInfo& recording) {
  if (!recording.overhead_percent) return "";
  const std::string allowed = fmt::format(" (--overhead {:g}", *recording.overhead_percent);
  const double beyond_s = recording.collector_cpu_s - recording.duration_s * *recording.overhead_percent / 100;
  if (beyond_s <= 0) return allowed + ")";
  if (beyond_s <= kMostBeyondS)
    return allowed + fmt::format(" does not limit the first {} of it, which show in a run of {})",
                                 seconds_text(kUnlimitedS), seconds_text(recording.duration_s));
  return allowed +
         " is for each core that the program keeps busy, and leaves out the start and the end of processes "
         "and snapshots that it asks for)";
}

}  // namespace

std::string cost_line(const View& view) {
  const RecordingInfo& recording = view.recording->info;
  if (recording.collector_cpu_s <= 0 || recording.duration_s <= 0) return "";
  return fmt::format("whyrss itself took {:.2f} s of CPU time beside the program, {:.1f} % of a core{}",
                     recording.collector_cpu_s, 100 * recording.collector_cpu_s / recording.duration_s,
                     allowed_text(recording));
}

// Which of its states no walk shows.
void add_estimates(const ProcessView& process, std::vector<std::string>& lines) {
  const auto add = [&](const char* what, const std::optional<StateMoment>& moment) {
    if (!moment || !moment->is_estimate()) return;
    lines.push_back(
        fmt::format("pid {}: {} ({}) comes from its polled RSS, and from page faults and allocations since "
                    "the snapshot at {}: an estimate",
                    process.account->pid, what, seconds_text(moment->time_s), seconds_text(moment->walked_s)));
  };
  const bool one = process.at_peak && process.at_last && process.at_peak->time_s == process.at_last->time_s;
  if (!one) add("its peak", process.at_peak);
  add(one ? "its end, and peak," : "its end", process.at_last);
}

// Of these objects no line is known.
void add_objects_by_arena(const View& view, std::vector<std::string>& lines) {
  std::int64_t bytes = 0;
  for (const ProcessView& process : view.processes) bytes += process.pymalloc.live_by_arena;
  if (bytes < kNamedGrowthBytes) return;
  lines.push_back(fmt::format(
      "which lines made {} of Python objects of up to 512 bytes: they stand under those that made CPython's "
      "arenas grow{}",
      size_text(bytes),
      view.in_notebook ? "" : " (`record` without --python-objects off, or with --mode exact, shows their own)"));
}

std::vector<std::string> limit_lines(const View& view, std::size_t top) {
  std::vector<std::string> lines;
  std::map<std::string, std::string> capabilities = view.recording->info.capabilities;
  capabilities.try_emplace("touch", "none");  // as in the JSON: absent means not there
  capabilities.try_emplace("write_tracking", "false");
  for (const auto& [capability, value] : capabilities) {
    if (works(capability, value)) continue;
    const bool has_reason = value != "no" && value != "none" && value != "false" && !value.empty();
    for (const LimitText& limit : kLimits)
      if (limit.capability == capability)
        lines.push_back(std::string(limit.text) + (has_reason ? " (" + printable(value) + ")" : ""));
  }
  std::vector<std::string> of_processes;
  for (const ProcessView& process : view.processes)
    if (process.account->traced && process.account->allocator == "other")
      of_processes.push_back(
          fmt::format("pid {}: its allocator is none that is known here (linked into the program?): what it mapped and "
                      "holds no live "
                      "block counts as anonymous mappings",
                      process.account->pid));
  for (const ProcessView& process : view.processes) add_estimates(process, of_processes);
  keep_first(of_processes, top);
  std::ranges::move(of_processes, std::back_inserter(lines));
  add_objects_by_arena(view, lines);
  for (const ProcessView& process : view.processes)
    for (const CauseView& cause : process.causes)
      if (cause.estimate) {
        lines.push_back(
            fmt::format("\"{}\" is an estimate: what of the heap is live was not recorded page by page everywhere",
                        info(cause.cause).title));
        return lines;
      }
  return lines;
}

}  // namespace whyrss
