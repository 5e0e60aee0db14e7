#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "report/verdicts/accounting_rule.h"
#include "report/verdicts/descriptor_rule.h"
#include "report/verdicts/file_rules.h"
#include "report/verdicts/fork_cow_rule.h"
#include "report/verdicts/growth_parts.h"
#include "report/verdicts/heap_rules.h"
#include "report/verdicts/huge_page_rule.h"
#include "report/verdicts/import_rule.h"
#include "report/verdicts/killed_rules.h"
#include "report/verdicts/language_runtime.h"
#include "report/verdicts/lazy_free_rule.h"
#include "report/verdicts/limit_rules.h"
#include "report/verdicts/next_steps.h"
#include "report/verdicts/retained_view_rule.h"
#include "report/verdicts/shared_memory_rule.h"
#include "report/verdicts/unmapped_rule.h"
#include "report/verdicts/unsplit_rule.h"
#include "report/verdicts/verdict.h"
#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/view/build_view.h"
#include "report/view/final_frees.h"
#include "report/view/line_text.h"
#include "report/view/memory_figures.h"
#include "report/view/series.h"
#include "report/view/trend.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Other rules report it, or it is no trouble.
bool has_own_verdict(Cause cause) {
  constexpr std::array kReported{Cause::file_cache,  Cause::shared_memory, Cause::heap_live,
                                 Cause::heap_slack,  Cause::heap_retained, Cause::heap_unsplit,
                                 Cause::fork_shared, Cause::lazy_free,     Cause::whyrss};
  return std::find(kReported.begin(), kReported.end(), cause) != kReported.end();
}

constexpr std::string_view kIfThePeak = "If the peak is the trouble: ";

// What a fork child has of its own of the relocated pages of libraries and the like is what it does not share.
std::int64_t own_growth(const ProcessView& process, const CauseView& own) {
  const bool inherited = process.account->born_by_fork && own.cause == Cause::file_cow;
  return inherited ? std::min(own.rss.growth(), own.uss_growth) : own.rss.growth();
}

// Arrays that images declare, with initial values (file_cow, once written) or without (anonymous): no call mapped
// them, but what wrote to them is known.
struct StaticData {
  std::int64_t bytes = 0;
  std::string text;  // "static data of grid (touched at grid.c:9 in fill)"
};

StaticData static_data(const StackTable& stacks, Cause cause, const std::vector<SiteView>& sites) {
  if (cause != Cause::anonymous && cause != Cause::file_cow) return {};
  std::vector<SiteView> arrays;
  for (const SiteView& site : sites)
    if (site.stack == kEmptyStack && site.mapping().starts_with('/')) arrays.push_back(site);
  const std::vector<const SiteView*> all = pointers(arrays);
  const std::int64_t bytes = sum_growth(all);
  if (bytes < kNamedGrowthBytes) return {};
  const std::vector<MappingGrowth> images = growth_by_mapping(arrays);
  std::string text = fmt::format("static data of {}", base_name(images.front().mapping));
  if (images.size() > 1 && !dominates(images.front().bytes, bytes)) text += " and others";
  const std::vector<LineGrowth> lines = growth_by_touch(stacks, all);
  return {bytes, text + kept_where(lines, bytes, touch_verb(cause))};
}

// " (its environment has no LD_PRELOAD)"; "" where it is not known. A note goes on with what to do about it.
std::string untraced_reason(const ProcessAccount& account) {
  if (!account.unfit.empty()) return fmt::format(" (it {})", printable(account.unfit));
  return account.untraced_reason.empty() ? "" : fmt::format(" ({})", printable(account.untraced_reason));
}

// Whether most of it are variables of threads (`thread_local`), which the loader makes beside their stacks and zeroes.
bool are_thread_locals(const StackTable& stacks, const CauseView& cause) {
  if (cause.cause != Cause::stack) return false;
  const auto is_of_loader = [&](FrameId id) { return stacks[id].function.starts_with("_dl_allocate_tls"); };
  std::int64_t bytes = 0;
  for (const SiteView& site : cause.sites)
    for (const TouchView& touch : site.touched())
      if (std::ranges::any_of(stacks[touch.stack], is_of_loader)) bytes += touch.growth;
  return 2 * bytes > cause.rss.growth();
}

// "anonymous mappings", "of a program that was not traced (...)".
std::string what_grew(const CauseView& cause, const ProcessAccount& account) {
  if (cause.cause != Cause::unknown) return std::string(info(cause.cause).title);
  return account.traced ? "that no recorded call explains"
                        : "of a program that was not traced" + untraced_reason(account);
}

// Whether it is a program of Go is known of those that are linked statically.
void explain_untraced(Verdict& verdict, const ProcessAccount& account) {
  verdict.why = "The library that sees calls was not in this program: nothing says which of its lines it was.";
  verdict.advice = "See under \"What was lost\" why.";
  if (account.unfit.empty()) return;
  verdict.why = fmt::format("This program {}, so no library can see its calls: nothing says which of its lines it was.",
                            printable(account.unfit));
  if (account.unfit.find("Go program") != std::string::npos) verdict.advice = go_runtime().advice;
  if (account.unfit == "is statically linked")
    verdict.advice = "Linked dynamically (without -static), it is recorded with its lines.";
}

// What grew and has no verdict of its own: the answer still comes first.
void cause_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    for (const CauseView& whole : process.causes) {
      if (whole.rss.growth() < kNamedGrowthBytes) continue;
      const CauseView cause = without_library_data(*process.account, without_imports(view.recording->stacks, whole));
      const std::int64_t growth = own_growth(process, cause);
      if (cause.cause == Cause::not_looked_at || has_own_verdict(cause.cause) || !is_worth_naming(growth, process))
        continue;
      if (cause.cause == Cause::fork_cow && is_reported_copy(view, process)) continue;
      const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(cause.sites));
      Verdict verdict{.id = "cause-growth", .severity = Severity::info, .pid = process.account->pid, .bytes = growth};
      const bool unknown = cause.cause == Cause::unknown;
      verdict.headline = size_text(growth) + " ";
      constexpr std::int64_t kGoodPart = 5;  // one in so many
      const StaticData arrays = static_data(view.recording->stacks, cause.cause, cause.sites);
      const bool is_static = dominates(arrays.bytes, growth);
      const bool has_thread_locals = are_thread_locals(view.recording->stacks, cause);
      verdict.headline += is_static           ? arrays.text
                          : has_thread_locals ? "thread-local variables"
                                              : what_grew(cause, *process.account);
      if (!is_static)
        verdict.headline +=
            kept_where(lines, growth, cause.cause == Cause::fork_cow ? "allocated" : "mapped", touch_verb(cause.cause));
      if (!is_static && kGoodPart * arrays.bytes >= growth)
        verdict.headline += fmt::format("; {} of it {}", size_text(arrays.bytes), arrays.text);
      const Trend trend = trend_of(view.recording->stacks, process, whole);
      verdict.bytes_per_s = trend.bytes_per_s;
      verdict.headline += trend_text(trend, lines);
      verdict.why = unknown ? "The memory was mapped by a process or in a way that the recording did not see."
                            : fmt::format("It comes back when: {}.", info(cause.cause).comes_back);
      verdict.advice =
          has_thread_locals
              ? "Each thread has a copy of them, which the loader zeroes: make them smaller, allocate them "
                "where a thread needs them, or start fewer threads."
              : "The lines behind it are listed with this cause.";
      if (cause.cause == Cause::heap_metadata) {
        verdict.why =
            "An allocator keeps some bytes beside each block for itself (glibc 8, and what rounding adds), and some "
            "pages "
            "without blocks. No line asked for them: they come with the blocks, the more the smaller these are.";
        verdict.advice =
            "It goes when the blocks are freed. Fewer and larger blocks have less of it: an array in place of many "
            "small "
            "objects.";
      }
      if (unknown && !process.account->traced) explain_untraced(verdict, *process.account);
      if (is_static) {
        verdict.why =
            cause.cause == Cause::file_cow
                ? "Data that a program or a library declares with initial values (.data), and tables of addresses that "
                  "the "
                  "loader fills in, lie in its file: each page becomes a copy of the process's own when it is first "
                  "written, and stays as long as it is loaded."
                : "Arrays that a program or a library declares (.bss) become resident page by page when they are "
                  "first used, and stay as long as it is loaded.";
      } else if (cause.cause == Cause::anonymous) {
        verdict.why =
            "The program maps this memory itself (mmap, sbrk), past any allocator: it stays until it is unmapped.";
        verdict.advice = trend.filling ? filling_text(trend)
                         : process.account->python
                             ? "Close it (close(), del) as soon as it is done with, or map less at a time."
                             : "Unmap it as soon as it is done with (munmap, close), or map less at a time.";
        explain_runtime(verdict, view.recording->stacks, cause.sites, growth);
      }
      if (cause.cause == Cause::file_cow && !is_static && top_named(lines) != nullptr) {
        verdict.why =
            "Each page that is written of a file that is mapped privately becomes a copy of the process's own, and "
            "stays until it is unmapped.";
        verdict.advice = fmt::format(
            "Write to less of it at a time, unmap it as soon as it is done with, or, if the file itself may change, "
            "map "
            "it so that writes go to the file ({}).",
            process.account->python ? "numpy.memmap: mode=\"r+\"; mmap: ACCESS_WRITE" : "MAP_SHARED");
      }
      if (cause.cause == Cause::fork_cow) {
        const std::int64_t left = left_to_copy(process);
        verdict.why += fmt::format(" At most {} are left to copy.", size_text(left));
        verdict.evidence["left_to_copy_bytes"] = left;
        verdict.evidence["bound_bytes"] = growth + left;
      }
      verdict.evidence["cause"] = info(cause.cause).slug;
      verdict.evidence["growth_bytes"] = growth;
      verdict.evidence["trend"] = trend_evidence(trend);
      verdict.evidence["lines"] = line_evidence(lines);
      verdicts.push_back(std::move(verdict));
    }
  }
}

// What came after the last walk, and polls alone tell.
void not_looked_at(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* cause = process.find(Cause::not_looked_at);
    if (cause == nullptr || !process.at_last || !is_worth_naming(cause->rss.last, process)) continue;
    Verdict verdict{
        .id = "not-looked-at", .severity = Severity::info, .pid = process.account->pid, .bytes = cause->rss.last};
    verdict.headline = fmt::format("{} that came after the last snapshot, at {}, and that no recorded call explains",
                                   size_text(cause->rss.last), seconds_text(process.at_last->walked_s));
    verdict.why =
        "The process's RSS was polled, and no allocation, mapping or page fault that was recorded since the last "
        "snapshot explains this part.";
    verdict.advice = fmt::format("This recording holds no more about it. {}", next_steps(view).snapshot);
    verdict.evidence["looked_s"] = process.at_last->walked_s;
    verdict.evidence["time_s"] = process.at_last->time_s;
    verdicts.push_back(std::move(verdict));
  }
}

constexpr std::array kHeapCauses{Cause::heap_live, Cause::heap_slack, Cause::heap_retained, Cause::heap_metadata,
                                 Cause::lazy_free};
constexpr std::array kMappingCauses{Cause::anonymous, Cause::heap_unsplit, Cause::lazy_free};

// What memory of a cause may turn into without leaving RSS, itself included.
std::span<const Cause> turns_into(Cause cause) {
  if (cause == Cause::anonymous || cause == Cause::heap_unsplit) return kMappingCauses;
  const bool heap = cause != Cause::lazy_free && std::ranges::find(kHeapCauses, cause) != kHeapCauses.end();
  return heap ? std::span<const Cause>(kHeapCauses) : std::span<const Cause>();
}

// What has gone of memory that no walk covered: less what other causes have more of at the end, which it may have been,
// as the pages of a file that was just being read.
std::int64_t unseen_gone_bytes(const ProcessView& process, const CauseView& unseen) {
  std::int64_t gone = unseen.at_peak - std::max(unseen.rss.first, unseen.rss.last), heap_rise = 0;
  for (const CauseView& cause : process.causes) {
    const std::int64_t rise = cause.rss.last - cause.at_peak;
    if (std::ranges::find(kHeapCauses, cause.cause) != kHeapCauses.end())
      heap_rise += rise;
    else if (cause.cause != unseen.cause)
      gone -= std::max<std::int64_t>(rise, 0);
  }
  return gone - std::max<std::int64_t>(heap_rise, 0);
}

// What left RSS after the peak. What was freed and kept by the allocator, or given up with MADV_FREE, has not left.
std::int64_t gone_bytes(const ProcessView& process, const CauseView& cause) {
  if (cause.cause == Cause::not_looked_at) return unseen_gone_bytes(process, cause);
  const std::int64_t gone = cause.at_peak - std::max(cause.rss.first, cause.rss.last);
  const std::span<const Cause> parts = turns_into(cause.cause);
  if (parts.empty()) return gone;
  std::int64_t at_peak = 0, first = 0, last = 0;
  for (const Cause part : parts) {
    const CauseView* found = process.find(part);
    if (found == nullptr) continue;
    at_peak += found->at_peak;
    first += found->rss.first;
    last += found->rss.last;
  }
  return std::min(gone, at_peak - std::max(first, last));
}

Verdict unseen_peak(const View& view, const ProcessView& process, std::int64_t gone) {
  Verdict verdict{.id = "gone-since-peak", .severity = Severity::info, .pid = process.account->pid, .bytes = gone};
  verdict.headline =
      fmt::format("{} of unknown cause gone since the peak of {} RSS", size_text(gone), size_text(process.rss.peak));
  verdict.why =
      "The size comes from the kernel's mark of the peak (VmHWM), or from a poll of RSS. The memory came and went "
      "between two snapshots, and no event explains it.";
  verdict.advice = fmt::format("{}{}", kIfThePeak, next_steps(view).snapshot_at_peak);
  verdict.evidence["cause"] = info(Cause::not_looked_at).slug;
  return verdict;
}

bool is_heap(Cause cause) { return cause >= Cause::heap_live && cause <= Cause::heap_metadata; }

std::int64_t kept_at_peak(const ProcessView& process) {
  const CauseView* kept = process.find(Cause::heap_retained);
  return kept == nullptr ? 0 : kept->at_peak;
}

// How often half of what is gone went. Of the heap polls say more than snapshots.
int falls_of(const ProcessView& process, Cause cause, std::int64_t gone) {
  struct Point {
    std::int64_t bytes = 0;
  };
  std::vector<Point> points;
  const auto is_within = [&](double time_s) {
    return time_s >= process.interval.from_s && time_s <= process.interval.to_s;
  };
  if (cause == Cause::heap_live)
    for (const auto& poll : process.account->live_polls)
      if (is_within(poll.time_s)) points.push_back({poll.live_bytes});
  if (points.empty())
    for (const Account& account : process.account->accounts)
      if (is_within(account.time_s)) points.push_back({bytes_of(account, cause)});
  return count_falls(points, gone / 2);
}

// What of a cause was there at the peak, and is gone.
struct GonePart {
  std::vector<SiteView> sites;  // their growth is what went
  std::string what;             // "file cache of data.bin"
  const char* verb = "";
  const char* touch_verb = nullptr;  // where it is known who touched what went
};

// What the lines lost that lost some. Others may have taken its place: less is gone of the cause as a whole.
std::int64_t lost_bytes(const std::vector<LineGrowth>& lines) {
  std::int64_t lost = 0;
  for (const LineGrowth& line : lines)
    if (line.bytes > 0 && is_significant(line.bytes, line.variance)) lost += line.bytes;
  return lost;
}

// `until_peak`: of this process, built where it is asked for first.
GonePart gone_part(const View& view, const ProcessView& process, const CauseView& cause, std::int64_t gone,
                   std::optional<View>& until_peak) {
  const StackTable& stacks = view.recording->stacks;
  GonePart part{.sites = cause.sites, .what = std::string(info(cause.cause).title)};
  for (SiteView& site : part.sites) site.growth = site.at_peak - site.resident;
  if (is_heap(cause.cause)) {
    std::int64_t object_bytes = 0;
    for (const SiteView& site : part.sites)
      if (is_python_object(stacks, site.stack)) object_bytes += site.growth;
    const bool objects = cause.cause == Cause::heap_live && is_nearly_all(object_bytes, gone);
    if (objects) part.what = "live Python objects";
    part.verb = objects ? "made" : cause.cause == Cause::heap_retained ? "last allocated" : "allocated";
    return part;
  }
  if (cause.cause == Cause::heap_unsplit)
    for (const AllocatorBytes& allocator : by_allocator(stacks, cause.cause, part.sites))
      if (is_nearly_all(allocator.growth, gone)) part.what = "of " + allocator.text();
  part.verb = cause.cause == Cause::fork_cow ? "allocated" : cause.cause == Cause::stack ? "made" : "mapped";
  const std::vector<MappingGrowth> files = growth_by_mapping(part.sites);
  constexpr std::string_view kSharedAnonymous = "/dev/zero (deleted)";  // a name that the kernel gives
  const bool is_file =
      !files.empty() && files.front().mapping.starts_with('/') && files.front().mapping != kSharedAnonymous;
  if (const StaticData arrays = static_data(stacks, cause.cause, part.sites); dominates(arrays.bytes, gone))
    part.what = arrays.text;
  else if (is_file && dominates(files.front().bytes, gone))
    part.what += " of " + printable(base_name(files.front().mapping));
  // Who touched it is known of what has grown by a moment, and not of what has gone since.
  if (!process.at_peak) return part;
  if (!until_peak)
    until_peak = build_processes(*view.recording, {.from_s = view.interval.from_s, .to_s = process.at_peak->time_s},
                                 process.account->pid);
  const CauseView* grown = until_peak->processes.empty() ? nullptr : until_peak->processes.front().find(cause.cause);
  if (grown != nullptr && dominates(gone, grown->rss.growth()) && dominates(grown->rss.growth(), gone)) {
    part.sites = grown->sites;
    part.touch_verb = touch_verb(*view.recording, cause.cause, files.empty() ? "" : files.front().mapping);
  }
  return part;
}

// A walk before the peak with nearly as much RSS, at which most of what the allocator kept at the peak was live: the
// program was freeing when RSS was largest, and what it freed is what made the peak.
std::optional<double> live_before_peak(const ProcessView& process) {
  if (!process.at_peak) return std::nullopt;
  constexpr double kNearly = 0.95;
  const std::vector<Account>& accounts = process.account->accounts;
  const Account* peak = last_at(accounts, process.at_peak->time_s);
  const std::int64_t kept = bytes_of(*peak, Cause::heap_retained), live = bytes_of(*peak, Cause::heap_live);
  const Account* fullest = nullptr;
  for (const Account& walk : accounts) {
    if (walk.time_s <= process.interval.from_s || walk.time_s >= peak->time_s) continue;
    const bool is_near = static_cast<double>(walk.rss_bytes) >= kNearly * static_cast<double>(peak->rss_bytes);
    const std::int64_t freed = bytes_of(walk, Cause::heap_live) - live;
    if (!is_near || 2 * freed <= kept || freed < kNamedGrowthBytes) continue;
    if (fullest == nullptr || bytes_of(walk, Cause::heap_live) > bytes_of(*fullest, Cause::heap_live)) fullest = &walk;
  }
  return fullest == nullptr ? std::nullopt : std::optional(fullest->time_s);
}

void gone_since_peak(const View& view, std::vector<Verdict>& verdicts);

// Of a heap that a process held to its end: what had gone before it freed that.
void heap_gone_before(const FinalFrees& frees, std::vector<Verdict>& verdicts) {
  std::vector<Verdict> gone;
  gone_since_peak(frees.before, gone);
  for (Verdict& verdict : gone)
    if (verdict.evidence["cause"] == info(Cause::heap_live).slug) verdicts.push_back(std::move(verdict));
}

// What was there at the peak and is gone at the end: a program that frees everything before it exits, as
// CPython does, has no growth left to speak of.
void gone_since_peak(const View& view, std::vector<Verdict>& verdicts) {
  constexpr std::int64_t kReplacedPart = 10;
  for (const ProcessView& at_peak : view.processes) {
    const std::optional<double> before_s = live_before_peak(at_peak);
    const ProcessView process =
        before_s ? build_with_peak(*view.recording, *at_peak.account, at_peak.interval, *before_s) : at_peak;
    const std::string peak =
        before_s ? fmt::format("{} RSS, near its peak of {}", size_text(process.rss.peak), size_text(at_peak.rss.peak))
                 : fmt::format("the peak of {} RSS", size_text(process.rss.peak));
    const std::shared_ptr<const FinalFrees>& final_frees = at_peak.final_frees;
    const bool is_held = held_heap(at_peak);  // heap-growth says until when
    if (is_held) heap_gone_before(*final_frees, verdicts);
    std::optional<View> until_peak;
    const CauseView* unknown_part = process.find(Cause::not_looked_at);
    const std::int64_t unseen = unknown_part == nullptr ? 0 : unknown_part->at_peak;
    for (const CauseView& cause : process.causes) {
      // Where other causes rose meanwhile, RSS fell by less, and no more can be said of the peak than of that.
      const std::int64_t fell = process.rss.peak - process.rss.last, gone_of_cause = cause.at_peak - cause.rss.last;
      const std::int64_t gone_from_rss = gone_bytes(process, cause), left = std::min(gone_from_rss, fell);
      const std::int64_t gone = gone_of_cause - (gone_from_rss - left);
      const bool large = left >= kNamedGrowthBytes &&
                         static_cast<double>(left) >= kNamedGrowthShare * static_cast<double>(process.rss.peak);
      // The program did not hold what is lazy_free, and under a limit it would not have been there.
      const bool reported =
          cause.cause == Cause::fork_shared || cause.cause == Cause::whyrss || cause.cause == Cause::lazy_free;
      if (!large || reported || (is_held && cause.cause == Cause::heap_live)) continue;
      if (cause.cause == Cause::not_looked_at) {
        verdicts.push_back(unseen_peak(view, process, left));
        continue;
      }
      const GonePart part = gone_part(view, process, cause, gone_of_cause, until_peak);
      const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(part.sites));
      const ReceivedText* const received =
          cause.cause == Cause::heap_live ? mostly_received(view.recording->stacks, part.sites, gone) : nullptr;
      Verdict verdict{.id = "gone-since-peak", .severity = Severity::info, .pid = process.account->pid, .bytes = gone};
      const char* const verb = received != nullptr ? "received" : part.verb;
      const std::int64_t lost = lost_bytes(lines), came = lost - gone_of_cause;
      const bool is_known = process.at_peak && !process.at_peak->is_estimate();
      const bool is_replaced = came >= kNamedGrowthBytes && kReplacedPart * came >= gone_of_cause;
      if (is_replaced) {
        verdict.bytes = lost;
        verdict.headline = fmt::format("{}{} {} gone since {}{}, while {} came at other lines",
                                       is_known ? "" : "about ", size_text(lost), part.what, peak,
                                       kept_where(lines, lost, verb, part.touch_verb), size_text(came));
      } else if (is_known && !dominates(gone, gone_of_cause))
        verdict.headline =
            fmt::format("{} less than at {}: {} less {}{}, while other memory grew", size_text(gone), peak,
                        size_text(gone_of_cause), part.what, kept_where(lines, gone_of_cause, verb, part.touch_verb));
      else
        verdict.headline =
            fmt::format("{}{} {} gone since {}{}", unseen >= gone / 20 ? "at least " : "", size_text(gone), part.what,
                        peak, kept_where(lines, gone, verb, part.touch_verb));
      verdict.why = "The memory was there when RSS was largest and has been given back since, so it is no leak.";
      if (cause.cause == Cause::shared_memory)
        verdict.why = "The process had it mapped when RSS was largest, and has not now.";
      else if (is_replaced)
        verdict.why = fmt::format(
            "The memory was there when RSS was largest and has been freed since, so it is no leak. RSS "
            "fell by {} only, as other memory came.",
            size_text(left));
      else if (!dominates(left, gone))
        verdict.why = fmt::format(
            "The memory was there when RSS was largest and has been freed since, so it is no leak. RSS fell by {} of "
            "it; the rest was kept, or is used again.",
            size_text(left));
      const std::string late = freed_late_text(view, at_peak);
      if (cause.cause == Cause::heap_live && !late.empty()) {
        const bool is_all = dominates(final_frees->live_bytes, cause.at_peak);
        if (is_all) verdict.headline += late;
        verdict.why = fmt::format(
            "{} freed right before the end, by the program or as main() returned: whether it would be freed in a "
            "longer run is not known.{}",
            is_all ? "The memory was" : fmt::format("{} of the memory was", size_text(final_frees->freed_bytes)),
            is_all ? "" : " The rest was freed before, so it is no leak.");
      }
      const bool is_mapped = cause.cause == Cause::anonymous || cause.cause == Cause::heap_unsplit;
      if (is_mapped && final_frees != nullptr && was_held(process, *final_frees, cause.cause, gone_of_cause)) {
        verdict.headline += fmt::format(", unmapped only as it ended, after {}", seconds_text(final_frees->until_s));
        verdict.why =
            "The memory was there until the program ended, and was unmapped on its way out: whether a longer run would "
            "give it back is not known.";
        verdict.evidence["until_s"] = final_frees->until_s;
      }
      if (before_s && cause.cause == Cause::heap_live && kept_at_peak(at_peak) >= kNamedGrowthBytes)
        verdict.why += fmt::format(" When RSS was largest, at {}, {} of the heap was freed already, but kept.",
                                   seconds_text(at_peak.at_peak->time_s), size_text(kept_at_peak(at_peak)));
      if (const int falls = falls_of(process, cause.cause, gone_of_cause); falls >= 2)
        verdict.why += fmt::format(" It came and went {} times.", falls);
      const std::optional<LineGrowth> top = named_line(lines, gone);
      const bool is_one_line = top && top->runtime.empty() && top->number > 0 && top->thread_bytes == 0;
      verdict.advice = cause.cause == Cause::file_cache
                           ? "Nothing to fix: under a memory limit the kernel takes file cache back first."
                       : cause.cause == Cause::heap_retained || cause.cause == Cause::heap_slack
                           ? "It was free already: see what had been allocated there before."
                           : fmt::format("If the peak is the trouble (a memory limit), {} at a time.",
                                         is_one_line ? "make this line hold less" : "hold less");
      if (received != nullptr) {
        verdict.why += received->why;
        verdict.advice = fmt::format("{}{}", kIfThePeak, received->advice);
      }
      explain_runtime(verdict, view.recording->stacks, part.sites, gone_of_cause, kIfThePeak);
      verdict.evidence["cause"] = info(cause.cause).slug;
      verdict.evidence["at_peak_bytes"] = cause.at_peak;
      verdict.evidence["left_rss_bytes"] = left;
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
      {"oom-killed", oom_killed},
      {"killed", killed_from_outside},
      {"near-limit", near_limit},
      {"limit-rereading", limit_rereading},
      {"limit-reclaimed", limit_reclaimed},
      {"file-cache-growth", file_cache_growth},
      {"file-dirty-growth", file_dirty_growth},
      {"shared-memory-growth", shared_memory_growth},
      {"shared-memory-unmapped", shared_memory_unmapped},
      {"shared-memory-left", shared_memory_left},
      {"lazy-free-growth", lazy_free_growth},
      {"heap-growth", heap_growth},
      {"heap-retained", heap_retained},
      {"heap-fragmented", heap_fragmented},
      {"allocator-growth", allocator_growth},
      {"fork-cow-refcount", fork_cow_objects},
      {"fork-cow-write", fork_cow_write},
      {"fork-left-alone", fork_left_alone},
      {"rss-double-counted", rss_double_counted},
      {"retained-view", retained_view},
      {"huge-page-padding", huge_page_padding},
      {"per-process-import", per_process_import},
      {"library-code", library_code},
      {"imports", import_cost},
      {"descriptor-growth", descriptor_growth},
      {"cause-growth", cause_growth},
      {"not-looked-at", not_looked_at},
      {"gone-since-peak", gone_since_peak},
  };
  return rules;
}

}  // namespace whyrss
