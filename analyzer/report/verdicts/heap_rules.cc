#include "report/verdicts/heap_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "model/library_allocator.h"
#include "report/verdicts/growth_parts.h"
#include "report/verdicts/language_runtime.h"
#include "report/verdicts/next_steps.h"
#include "report/verdicts/retained_view_rule.h"
#include "report/verdicts/unsplit_rule.h"
#include "report/view/blame.h"
#include "report/view/build_view.h"
#include "report/view/line_text.h"
#include "report/view/memory_figures.h"
#include "report/view/series.h"
#include "report/view/trend.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"
#include "report/wording/times.h"

namespace whyrss {
namespace {

struct AllocatorAdvice {
  std::string_view allocator, name, remedy;
};

constexpr std::array<AllocatorAdvice, 4> kAllocatorAdvice{{
    {"glibc", "glibc malloc",
     "malloc_trim(0) after the work gives back nearly all of what it keeps; with many threads MALLOC_ARENA_MAX=2 keeps "
     "less, and so does jemalloc (LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0)."},
    {"jemalloc", "jemalloc",
     "jemalloc gives pages back some seconds after they were freed, but only while it is called: "
     "MALLOC_CONF=background_thread:true does it in idle programs too, dirty_decay_ms:0,muzzy_decay_ms:0 at once."},
    {"tcmalloc", "tcmalloc",
     "TCMALLOC_RELEASE_RATE=10 gives pages back sooner, MallocExtension_ReleaseFreeMemory() at once; jemalloc and "
     "glibc with malloc_trim(0) keep less by default."},
    {"mimalloc", "mimalloc",
     "mi_collect(true) gives back what it can; from mimalloc 2.1 on MIMALLOC_PURGE_DELAY=0 does so at once."},
}};

constexpr std::string_view kTrimFromPython = " From Python: ctypes.CDLL(None).malloc_trim(0).";

constexpr AllocatorAdvice kOtherAllocatorAdvice{"other", "the allocator",
                                                "See the allocator's own settings for giving memory back"};

constexpr std::string_view kPymallocRemedy =
    "CPython gives an arena (1 MiB, 256 KiB before 3.10) back when no object is left in it: make what lives long "
    "before what lives short, or do such work in a child process that ends.";

const AllocatorAdvice& advice_for(const ProcessView& process) {
  for (const AllocatorAdvice& row : kAllocatorAdvice)
    if (process.account->allocator == row.allocator) return row;
  return kOtherAllocatorAdvice;
}

// Which of the two allocators of a Python process this is about: the one with more than nearly nothing of it.
struct Holders {
  bool malloc = false, pymalloc = false;
};

Holders holders_of(std::int64_t bytes, std::int64_t pymalloc_bytes) {
  constexpr double kNamedPart = 0.1;
  const double part = static_cast<double>(pymalloc_bytes) / static_cast<double>(std::max<std::int64_t>(bytes, 1));
  return {part<1 - kNamedPart, part> kNamedPart};
}

std::string names_of(const Holders& holders, const ProcessView& process) {
  std::string names;
  if (holders.malloc) names = advice_for(process).name;
  if (holders.pymalloc) names += names.empty() ? "CPython's pymalloc" : " and CPython's pymalloc";
  return names;
}

// Where CPython's objects are neither logged nor sampled, a line is known only of when an arena had to be mapped for
// more of them: it need not be the line that keeps them.
bool known_by_arena(const View& view, const ProcessView& process, std::int64_t bytes, std::int64_t pymalloc_bytes) {
  if (view.recording->info.mode == "exact" || pymalloc_bytes * 2 <= bytes) return false;
  return process.pymalloc.live == 0 || process.pymalloc.live_by_arena * 2 > process.pymalloc.live;
}

constexpr std::string_view kByArenaWhy =
    " CPython asked for the arenas of its objects at that line, which need not be the line whose objects are in them.";
// No allocator is asked for them again (Objects/dictobject.c, listobject.c, tupleobject.c, floatobject.c).
constexpr std::string_view kFreeListsWhy =
    " Dictionaries, lists, tuples and floats that CPython took from its free lists stand under the line that first "
    "made them.";
std::int64_t last_bytes(const ProcessView& process, Cause cause) {
  const CauseView* found = process.find(cause);
  return found == nullptr ? 0 : found->rss.last;
}

std::vector<LineGrowth> lines_of(const View& view, const CauseView& cause) {
  return growth_by_line(view.recording->stacks, pointers(cause.sites));
}

std::string no_line_text(const std::vector<LineGrowth>& lines) {
  const bool is_seen = std::ranges::any_of(lines, [](const LineGrowth& line) { return !line.line.empty(); });
  return is_seen ? " (no line is more than twice its error)" : " (no line was recorded)";
}

// Of growing live heap, what is known to be of Python objects that no import made: by its stacks, and what lies in
// pymalloc's pools.
std::int64_t python_object_growth(const StackTable& stacks, const ProcessView& process, const CauseView& live) {
  if (!process.account->python) return 0;
  std::int64_t own = 0, imported = 0;
  for (const SiteView& site : live.sites)
    if (is_python_object(stacks, site.stack))
      (imported_frame(stacks, site.stack) == nullptr ? own : imported) += site.growth;
  return std::max(own, process.pymalloc_growth.live - imported);
}

// What keeps memory that should have been freed: of Python objects, of Python and C, and without Python. `native` asked
// for most of it: its owner is native code, or a Python object that frees it.
std::string_view what_keeps(bool python, bool objects, bool native) {
  if (python && native)
    return "native code that does not free it, or Python objects that own it, in a list or cache that only grows or a "
           "reference cycle that gc has not collected";
  if (objects) return "a list or cache that only grows, or a reference cycle that gc has not collected";
  if (python)
    return "a list or cache that only grows, a reference cycle that gc has not collected, or a library that does not "
           "free";
  return "a list or cache that only grows, or memory that nothing frees";
}

// Whether it is a leak nobody but the program's author knows; what the recording says for and against it.
std::string growth_advice(const Trend& trend, bool by_arena, std::string_view holders) {
  if (trend.filling) return filling_text(trend);
  const LineGrowth* line = growing_line(trend);
  const std::string from = by_arena ? "where it was made" : line == nullptr ? "that line" : line->line;
  if (trend.kind == Trend::Kind::growing && trend.evenly)
    return (trend.since_s <= trend.from_s ? std::string("It grew evenly all the time")
                                          : fmt::format("From {} on it grew evenly to the end, by {}",
                                                        seconds_text(trend.since_s), size_text(trend.bytes))) +
           fmt::format(", as a leak does: look for what keeps it from {} on: {}.", from, holders);
  if (trend.kind != Trend::Kind::growing && line != nullptr)
    return fmt::format(
        "All together did not grow to the end, but what stands under {} did, evenly, by {}. If it does not take the "
        "place of other data, look for what keeps it from that line on: {}.",
        line->line, size_text(line->bytes), holders);
  if (trend.kind == Trend::Kind::flat)
    return fmt::format(
        "It has not grown since {}: data that the program keeps, a cache that is full, or its work was done. No leak "
        "as far as this recording goes; if it should have been freed, look for what keeps it from {} on: {}.",
        seconds_text(trend.since_s), from, holders);
  if (trend.kind == Trend::Kind::waves)
    return fmt::format(
        "It fell {} times by half of this or more and came back: what the program works with at a time. No leak as far "
        "as this recording goes; if the peak is the trouble, make the line hold less at a time.",
        trend.falls);
  return fmt::format(
      "Expected if the program needs this data at once. If it should have been freed, look for what keeps it from {} "
      "on: {}.",
      from, holders);
}

// The moment from which RSS fell without a pause until `end_s`.
double fell_from(const ProcessAccount& account, double end_s) {
  constexpr double kStepS = 0.05;
  constexpr std::int64_t kLeastPart = 100;  // of RSS, in a step
  const auto rss_at = [&](double time_s) {
    const RssPoint* poll = last_at(account.polls, time_s);
    return poll == nullptr ? 0 : poll->rss_bytes;
  };
  double from_s = end_s;
  for (std::int64_t rss = rss_at(end_s);; from_s -= kStepS) {
    const std::int64_t before = rss_at(from_s - kStepS);
    if (before <= rss + rss / kLeastPart) return from_s;
    rss = before;
  }
}

// Snapshots within the last second before the end, or teardown, of a process, youngest first; none of one that was
// killed or is not shown to its end.
std::vector<const Account*> last_snapshots(const View& view, const ProcessView& process) {
  const ProcessAccount& account = *process.account;
  std::vector<const Account*> found;
  if (!account.has_left || !account.ended_s || process.interval.to_s < end_of_work(*view.recording, account))
    return found;
  const double end_s = account.teardown_s.value_or(*account.ended_s);
  for (auto snapshot = account.accounts.rbegin(); snapshot != account.accounts.rend(); ++snapshot) {
    if (end_s - snapshot->time_s > kLeavingS || snapshot->time_s <= process.interval.from_s) break;
    if (snapshot->time_s <= process.interval.to_s) found.push_back(&*snapshot);
  }
  return found;
}

// The last moment before a program frees most of its heap, or most of what its allocator keeps at the end, if it does
// so on its way out: main() returns, and destructors of what static variables hold run before the last walk.
std::optional<double> freed_on_leaving_from(const View& view, const ProcessView& process) {
  // While it frees, snapshots follow each other as fast as this; what it made before, and freed in turn, is older.
  constexpr double kFreeingS = 0.2;
  const std::vector<const Account*> snapshots = last_snapshots(view, process);
  if (snapshots.empty()) return std::nullopt;
  const Account& last = *snapshots.front();
  const std::int64_t left = bytes_of(last, Cause::heap_live);
  std::int64_t most = left;
  for (const Account* snapshot : snapshots) most = std::max(most, bytes_of(*snapshot, Cause::heap_live));
  const Account* half = nullptr;    // the last one with more than half of it
  const Account* before = nullptr;  // the fullest right before
  for (const Account* snapshot : snapshots) {
    const std::int64_t live = bytes_of(*snapshot, Cause::heap_live);
    if (half == nullptr && 2 * (live - left) > most - left) half = before = snapshot;
    if (half != nullptr && half->time_s - snapshot->time_s <= kFreeingS && live > bytes_of(*before, Cause::heap_live))
      before = snapshot;
  }
  if (before == nullptr) return std::nullopt;
  double from_s = before->time_s;
  // That one may have come while it was freeing, and the one before long ago.
  const double full_s = fell_from(*process.account, last.time_s);
  const Account* full = full_s < from_s && last.time_s - full_s <= kLeavingS && full_s > process.interval.from_s
                            ? last_at(process.account->accounts, full_s)
                            : nullptr;
  if (full != nullptr && bytes_of(*full, Cause::heap_live) > bytes_of(*before, Cause::heap_live))
    before = full, from_s = full_s;
  const std::int64_t freed = bytes_of(*before, Cause::heap_live) - left, kept = bytes_of(last, Cause::heap_retained);
  const std::int64_t more = kept - bytes_of(*before, Cause::heap_retained);
  // What lay free beside live blocks is kept with them.
  const std::int64_t beside =
      std::max<std::int64_t>(bytes_of(*before, Cause::heap_slack) - bytes_of(last, Cause::heap_slack), 0);
  if (freed < kNamedGrowthBytes || freed * 2 < more - beside || (kept >= kNamedGrowthBytes && more * 2 < kept))
    return std::nullopt;
  return from_s;
}

// What is held at the end of a program was there for so long, and was not what it works with at a time: from then on.
double held_from(const ProcessView& process, double until_s) {
  constexpr double kHeldPart = 8;  // of its life, and for as long as leaving takes
  const double begun_s = std::max(process.account->born_s, process.interval.from_s);
  return until_s - std::max(kLeavingS, (until_s - begun_s) / kHeldPart);
}

// Whether most of what was freed from then on had been live for long.
bool was_held_until(const ProcessView& process, double until_s) {
  const std::vector<Account>& accounts = process.account->accounts;
  const double from_s = held_from(process, until_s);
  if (from_s <= std::max(process.account->born_s, process.interval.from_s)) return false;
  const std::int64_t left = last_bytes(process, Cause::heap_live);
  const std::int64_t freed = bytes_of(*last_at(accounts, until_s), Cause::heap_live) - left;
  for (auto snapshot = accounts.rbegin(); snapshot != accounts.rend(); ++snapshot) {
    if (snapshot->time_s > until_s) continue;
    if (2 * (bytes_of(*snapshot, Cause::heap_live) - left) < freed) return false;
    if (snapshot->time_s <= from_s) return true;
  }
  return false;
}

// Two walks one after the other: half of what the allocator has come to keep was live at the first, and no more since.
struct Freed {
  double after_s, by_s;
  bool at_once;  // most of it
};
std::optional<Freed> freed_between(const ProcessView& process, std::int64_t kept_bytes) {
  const std::int64_t live = last_bytes(process, Cause::heap_live);
  const Account* after = nullptr;
  const std::vector<Account>& accounts = process.account->accounts;
  for (auto snapshot = accounts.rbegin(); snapshot != accounts.rend() && snapshot->time_s > process.interval.from_s;
       ++snapshot) {
    if (snapshot->time_s > process.interval.to_s) continue;
    if (2 * (bytes_of(*snapshot, Cause::heap_live) - live) >= kept_bytes)
      return after == nullptr
                 ? std::nullopt
                 : std::optional(Freed{
                       snapshot->time_s, after->time_s,
                       2 * (bytes_of(*snapshot, Cause::heap_live) - bytes_of(*after, Cause::heap_live)) >= kept_bytes});
    after = &*snapshot;
  }
  return std::nullopt;
}

View view_until(const View& view, const ProcessView& process, double to_s) {
  const Interval interval{.from_s = view.interval.from_s,
                          .to_s = to_s,
                          .from_phase = view.interval.from_phase,
                          .from_pid = view.interval.from_pid};
  return build_processes(*view.recording, interval, process.account->pid);
}

Trend live_trend_until(const View& view, const ProcessView& process, double to_s) {
  const View before = view_until(view, process, to_s);
  const CauseView* cause = before.processes.front().find(Cause::heap_live);
  return cause == nullptr ? Trend{} : trend_of(view.recording->stacks, before.processes.front(), *cause);
}

bool grew_evenly(const Trend& trend) { return trend.kind == Trend::Kind::growing && trend.evenly; }

}  // namespace

std::optional<double> heap_held_until(const View& view, const ProcessView& process) {
  const auto from_s = freed_on_leaving_from(view, process);
  if (!from_s) return std::nullopt;
  const Trend trend = live_trend_until(view, process, *from_s);
  const bool was_held = trend.kind != Trend::Kind::waves && was_held_until(process, *from_s);
  return was_held || grew_evenly(trend) ? from_s : std::nullopt;
}

std::optional<LateHeap> freed_late(const View& view, const ProcessView& process) {
  const std::vector<Account>& accounts = process.account->accounts;
  if (!process.account->has_left || process.interval.to_s < end_of_work(*view.recording, *process.account))
    return std::nullopt;
  const auto end = std::ranges::upper_bound(accounts, process.interval.to_s, {}, &Account::time_s);
  if (end - accounts.begin() < 2) return std::nullopt;
  const Account &last = *std::prev(end), &before = *std::prev(end, 2);
  LateHeap late;
  if (process.interval.to_s - before.time_s <= kLeavingS && before.time_s > process.interval.from_s)
    late = {.until_s = before.time_s, .live_bytes = bytes_of(before, Cause::heap_live)};
  // That walk may have come while it was freeing, or long before.
  const double full_s = fell_from(*process.account, last.time_s);
  if (full_s < last.time_s && full_s > process.interval.from_s) {
    const View full = view_until(view, process, full_s);
    if (const std::int64_t live = last_bytes(full.processes.front(), Cause::heap_live); live >= late.live_bytes)
      late = {.until_s = full_s, .live_bytes = live};
  }
  const std::int64_t freed = late.live_bytes - bytes_of(last, Cause::heap_live);
  const bool was_most = 2 * freed >= bytes_of(last, Cause::heap_retained);  // else more was freed before
  if (!was_most || !is_worth_naming(freed, process)) return std::nullopt;
  // What is made and freed in turn was not held until then.
  if (live_trend_until(view, process, late.until_s).kind == Trend::Kind::waves) return std::nullopt;
  return late;
}

std::optional<double> mapped_until(const View& view, const ProcessView& process, const CauseView& cause) {
  const ProcessAccount& account = *process.account;
  const double end_s = end_of_work(*view.recording, account);
  if (!account.has_left || process.interval.to_s < end_s) return std::nullopt;
  const std::int64_t gone = cause.at_peak - cause.rss.last;
  std::optional<double> until_s;
  double from_s = process.interval.from_s;
  for (auto poll = account.polls.rbegin(); poll != account.polls.rend() && poll->time_s > from_s; ++poll) {
    if (poll->time_s > end_s) continue;
    const bool is_full = 2 * (poll->rss_bytes - process.rss.last) >= gone;
    if (!until_s && end_s - poll->time_s > kLeavingS) return std::nullopt;
    if (until_s && !is_full) return std::nullopt;
    if (until_s || !is_full) continue;
    until_s = poll->time_s;
    from_s = held_from(process, *until_s);
  }
  if (!until_s || from_s <= std::max(account.born_s, process.interval.from_s)) return std::nullopt;
  const auto had_it = [&](double time_s) {  // at an estimate on the way down it may not be known
    const Account* snapshot = last_at(account.accounts, time_s);
    return snapshot != nullptr && 2 * (bytes_of(*snapshot, cause.cause) - cause.rss.last) >= gone;
  };
  return had_it(*until_s) || had_it(from_s) ? until_s : std::nullopt;
}

std::string live_until_text(const View& view, const ProcessView& process, const LateHeap& late) {
  return fmt::format(", freed in its last {}",
                     seconds_text(end_of_work(*view.recording, *process.account) - late.until_s));
}

void heap_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    if (const auto until_s = heap_held_until(view, process)) {
      const std::size_t first = verdicts.size();
      heap_growth(view_until(view, process, *until_s), verdicts);
      for (std::size_t i = first; i < verdicts.size(); ++i) {
        verdicts[i].headline += fmt::format(", freed only as it ended, after {}", seconds_text(*until_s));
        verdicts[i].evidence["until_s"] = *until_s;
      }
      continue;
    }
    const CauseView* cause = process.find(Cause::heap_live);
    if (cause == nullptr || cause->rss.growth() < kNamedGrowthBytes) continue;
    const StackTable& stacks = view.recording->stacks;
    const CauseView own = without_imports(stacks, *cause);
    if (own.rss.growth() < kNamedGrowthBytes) continue;
    const Trend trend = trend_of(stacks, process, *cause);
    const std::int64_t growth = own.rss.growth();
    if (!trend.leak_like && !is_worth_naming(growth, process)) continue;
    if (dominates(retained_by_views(process), growth)) continue;  // retained-view says more about it
    const std::int64_t object_growth = python_object_growth(stacks, process, *cause);
    const bool objects = is_nearly_all(object_growth, growth);
    const bool some_objects = !objects && is_worth_naming(object_growth, process);
    const bool by_arena = known_by_arena(view, process, growth, process.pymalloc_growth.live);
    const ReceivedText* const received = mostly_received(stacks, own.sites, growth);
    const std::vector<LineGrowth> lines = lines_of(view, own);
    Verdict verdict{.id = "heap-growth", .severity = Severity::info, .pid = process.account->pid, .bytes = growth};
    verdict.headline = fmt::format("{} {}{}", size_text(growth), objects ? "live Python objects" : "live heap",
                                   kept_where(lines, growth,
                                              received != nullptr ? "received"
                                              : by_arena          ? "in arenas mapped"
                                              : objects           ? "made"
                                                                  : "allocated"));
    if (top_named(lines) == nullptr) verdict.headline += no_line_text(lines);
    verdict.headline += trend_text(trend, lines);
    const bool at_end = process.interval.to_s >= end_of_work(*view.recording, *process.account);
    const LineGrowth* const top = top_named(lines);
    verdict.why = fmt::format("The program allocated this{} and {}{}.",
                              objects        ? " for Python objects"
                              : some_objects ? fmt::format(" ({} of it for Python objects)", size_text(object_growth))
                                             : "",
                              at_end ? "has not freed it" : "had not freed it by then",
                              by_arena || top == nullptr ? "" : asked_text(*top));
    if (!by_arena && top != nullptr) verdict.why += callers_text(*top);
    if (by_arena) verdict.why += kByArenaWhy;
    if ((objects || some_objects) && !by_arena && top != nullptr) verdict.why += kFreeListsWhy;
    if (cause->estimate) verdict.why += " An estimate: what is live was not recorded page by page everywhere.";
    verdict.advice = growth_advice(trend, by_arena,
                                   what_keeps(process.account->python.has_value(), objects, names_native_line(lines)));
    if (by_arena) verdict.advice += fmt::format(" {}", next_steps(view).object_lines);
    verdict.bytes_per_s = trend.bytes_per_s;
    if (trend.leak_like) verdict.severity = Severity::warning;
    if (received != nullptr) {
      verdict.why += received->why;
      verdict.advice = received->advice;
    }
    explain_runtime(verdict, stacks, own.sites, growth);
    verdict.evidence["growth_bytes"] = cause->rss.growth();
    verdict.evidence["import_bytes"] = cause->rss.growth() - growth;
    verdict.evidence["received"] = received != nullptr;
    verdict.evidence["lines_by_arena"] = by_arena;
    verdict.evidence["python_object_growth_bytes"] = object_growth;
    verdict.evidence["estimate"] = cause->estimate;
    verdict.evidence["trend"] = trend_evidence(trend);
    verdict.evidence["lines"] = line_evidence(lines);
    verdicts.push_back(std::move(verdict));
  }
}

namespace {

constexpr const char* kLivedToTheEnd = "Nothing to do about this: it was live as long as the program worked.";

void library_retained(const View& view, const ProcessView& process, const AllocatorBytes& allocator,
                      std::vector<Verdict>& verdicts) {
  if (!is_worth_naming(allocator.growth, process)) return;
  const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(allocator.sites));
  Verdict verdict{.id = "heap-retained",
                  .severity = allocator.growth * 2 <= process.rss.growth() ? Severity::info : Severity::warning,
                  .pid = process.account->pid,
                  .bytes = allocator.growth};
  const std::int64_t all = process.find(Cause::heap_retained)->rss.growth();  // of all allocators
  const bool is_most = 2 * allocator.growth > all;
  const bool was_live = is_most && heap_held_until(view, process).has_value();
  const auto late = is_most && !was_live ? freed_late(view, process) : std::nullopt;
  if (was_live) verdict.severity = Severity::info;
  verdict.headline = fmt::format(
      "{} freed{}, but kept by {}{}{}{}", size_text(allocator.growth), was_live ? " as it ended" : "", allocator.text(),
      kept_where(lines, allocator.growth, "last allocated"), late ? live_until_text(view, process, *late) : "",
      was_live ? "" : ": not a leak, and not reclaimable by the kernel");
  const std::string followed =
      view.recording->info.mode == "exact" ? "" : fmt::format(" of {} and more", size_text(kFollowedBlockBytes));
  verdict.why = fmt::format(
      "The program freed all blocks{} on these pages. The allocator in {} keeps the pages for later ones: they count "
      "in "
      "RSS, and a memory limit kills rather than takes them.",
      followed, printable(base_name(allocator.library)));
  verdict.advice = was_live ? kLivedToTheEnd : way_back(allocator);
  verdict.evidence["growth_bytes"] = all;
  verdict.evidence["allocator_growth_bytes"] = allocator.growth;
  verdict.evidence["allocator"] = allocator.name;
  verdict.evidence["was_live"] = was_live;
  verdict.evidence["kind"] = allocator.kind;
  verdict.evidence["library"] = allocator.library;
  verdict.evidence["last_allocated_at"] = line_evidence(lines);
  verdicts.push_back(std::move(verdict));
}

// What the allocator that serves malloc keeps, CPython's included.
CauseView of_malloc(const StackTable& stacks, const CauseView& cause, const std::vector<AllocatorBytes>& others) {
  CauseView own = cause;
  if (others.empty()) return own;
  for (const AllocatorBytes& other : others) own.rss.last -= other.growth;
  std::erase_if(own.sites,
                [&](const SiteView& site) { return allocator_of(stacks, cause.cause, site.stack).has_value(); });
  return own;
}

}  // namespace

void heap_retained(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* whole = process.find(Cause::heap_retained);
    if (whole == nullptr || !is_worth_naming(whole->rss.growth(), process)) continue;
    if (const auto until_s = heap_held_until(view, process)) {
      const View before = view_until(view, process, *until_s);
      const ProcessView& then = before.processes.front();
      const std::int64_t free = last_bytes(then, Cause::heap_retained) + last_bytes(then, Cause::heap_slack);
      if (!dominates(whole->rss.growth() - free, whole->rss.growth())) {
        heap_retained(before, verdicts);
        continue;
      }
    }
    const StackTable& stacks = view.recording->stacks;
    const std::vector<AllocatorBytes> others = by_allocator(stacks, Cause::heap_retained, whole->sites);
    for (const AllocatorBytes& other : others) library_retained(view, process, other, verdicts);
    const CauseView cause = of_malloc(stacks, *whole, others);
    if (!is_worth_naming(cause.rss.growth(), process)) continue;
    const std::int64_t growth = cause.rss.growth();
    const std::int64_t live_bytes = last_bytes(process, Cause::heap_live);
    const Holders holders = holders_of(growth, process.pymalloc_growth.retained);
    const bool by_arena = known_by_arena(view, process, growth, process.pymalloc_growth.retained);
    const char* verb = by_arena ? "arenas mapped" : "last allocated";
    const std::vector<LineGrowth> lines = lines_of(view, cause);
    Verdict verdict{.id = "heap-retained", .severity = Severity::warning, .pid = process.account->pid, .bytes = growth};
    if (cause.estimate || growth * 2 <= process.rss.growth()) verdict.severity = Severity::info;
    const auto live_until_s = freed_on_leaving_from(view, process);
    const bool was_live = heap_held_until(view, process).has_value();
    if (was_live) verdict.severity = Severity::info;
    const auto late = was_live ? std::nullopt : freed_late(view, process);
    if (late) verdict.severity = Severity::info;
    verdict.headline = fmt::format("{}{} freed{}, but kept by {}{}{}{}", cause.estimate ? "about " : "",
                                   size_text(growth), was_live ? " as it ended" : "", names_of(holders, process),
                                   kept_where(lines, growth, verb), late ? live_until_text(view, process, *late) : "",
                                   was_live ? "" : ": not a leak, and not reclaimable by the kernel");
    const CauseView* live = process.find(Cause::heap_live);
    const bool with_imports =
        live != nullptr &&
        live->rss.last - without_imports(view.recording->stacks, *live).rss.last >= kNamedGrowthBytes;
    verdict.why = fmt::format(
        "The program freed all blocks on these pages; {} of the heap is still live{}. The allocator keeps the pages "
        "for later allocations: they count in RSS, and a memory limit kills rather than takes them.",
        size_text(live_bytes), with_imports ? ", what imports made among it" : "");
    if (live_until_s)
      verdict.why += fmt::format(
          " Most of it was freed within the last {}, by the program or by destructors that run when it ends; `whyrss "
          "report --to {:.3f}` shows what it held before.",
          seconds_text(*process.account->ended_s - *live_until_s), *live_until_s + 0.0005);
    const auto freed = freed_between(process, growth);
    if (freed && freed->at_once && !live_until_s)
      verdict.why += fmt::format(" Most of it was freed {}.", two_times("between", freed->after_s, "and", freed->by_s));
    if (freed && !freed->at_once && !live_until_s)
      verdict.why += fmt::format(" Half of it was live at {}.", seconds_text(freed->after_s));
    if (cause.estimate) verdict.why += " An estimate: what is live was not recorded page by page everywhere.";
    if (holders.malloc) {
      const AllocatorAdvice& known = advice_for(process);
      verdict.advice = known.remedy;
      if (known.allocator == "glibc" && process.account->python) verdict.advice += kTrimFromPython;
      if (known.allocator == kOtherAllocatorAdvice.allocator)
        verdict.advice += fmt::format("{}.", next_steps(view).other_allocators);
    }
    if (holders.pymalloc) verdict.advice += (verdict.advice.empty() ? "" : " ") + std::string(kPymallocRemedy);
    if (was_live) verdict.advice = kLivedToTheEnd;
    verdict.evidence["growth_bytes"] = whole->rss.growth();
    verdict.evidence["allocator"] = process.account->allocator;
    verdict.evidence["pymalloc_growth_bytes"] = process.pymalloc_growth.retained;
    verdict.evidence["live_bytes"] = live_bytes;
    verdict.evidence["was_live"] = was_live;
    verdict.evidence["live_until_s"] = live_until_s ? nlohmann::ordered_json(*live_until_s) : nullptr;
    verdict.evidence["freed_between_s"] =
        freed ? nlohmann::ordered_json::array({freed->after_s, freed->by_s}) : nlohmann::ordered_json(nullptr);
    verdict.evidence["estimate"] = cause.estimate;
    verdict.evidence["last_allocated_at"] = line_evidence(lines);
    verdicts.push_back(std::move(verdict));
  }
}

void heap_fragmented(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    if (const auto until_s = heap_held_until(view, process)) {
      const std::size_t first = verdicts.size();
      heap_fragmented(view_until(view, process, *until_s), verdicts);
      for (std::size_t i = first; i < verdicts.size(); ++i) verdicts[i].evidence["until_s"] = *until_s;
      continue;
    }
    const CauseView* cause = process.find(Cause::heap_slack);
    if (cause == nullptr || cause->estimate || !is_worth_naming(cause->rss.growth(), process)) continue;
    const std::int64_t growth = cause->rss.growth();
    const std::int64_t live_bytes = last_bytes(process, Cause::heap_live);
    if (!is_fragmented(cause->rss.last, live_bytes)) continue;
    const CauseView* live = process.find(Cause::heap_live);
    const std::vector<LineGrowth> lines = lines_of(view, *cause);
    const std::vector<LineGrowth> live_lines = live == nullptr ? std::vector<LineGrowth>{} : lines_of(view, *live);
    const auto held_by = [&](const LineGrowth& pinning) {
      for (const LineGrowth& line : live_lines)
        if (line.line == pinning.line && line.file == pinning.file) return line.bytes;
      return std::int64_t{0};
    };
    Verdict verdict{
        .id = "heap-fragmented", .severity = Severity::warning, .pid = process.account->pid, .bytes = growth};
    verdict.headline = fmt::format("{} free, but pinned by live blocks on the same pages", size_text(growth));
    const bool by_arena = known_by_arena(view, process, growth, process.pymalloc_growth.slack);
    if (by_arena)
      verdict.headline += kept_where(lines, growth, "in arenas mapped");
    else if (const LineGrowth* top = top_named(lines); top != nullptr && !mostly_unseen(lines, growth))
      verdict.headline += fmt::format(": {} allocated {} pin {}{}", size_text(held_by(*top)), placed_text(*top),
                                      size_text(top->bytes), error_text(top->bytes, top->variance));
    verdict.why = fmt::format(
        "A page goes back only when nothing on it is live. Here {} of live blocks lie scattered over pages whose other "
        "blocks were freed.",
        size_text(live_bytes));
    verdict.advice =
        "Allocate what lives long apart from what lives short: before it, in a pool of its own, or copied together "
        "once the rest is freed.";
    if (!view.in_notebook)
      verdict.advice += " Allocators pin differently much: `whyrss compare-allocators` measures it.";
    if (holders_of(growth, process.pymalloc_growth.slack).pymalloc)
      verdict.advice += " In CPython: make what lives long first, or do the work in a child process that ends.";
    if (by_arena) verdict.advice += fmt::format(" {}", next_steps(view).object_lines);
    verdict.evidence["growth_bytes"] = growth;
    verdict.evidence["slack_bytes"] = cause->rss.last;
    verdict.evidence["live_bytes"] = live_bytes;
    verdict.evidence["pymalloc_growth_bytes"] = process.pymalloc_growth.slack;
    auto list = line_evidence(lines);
    for (std::size_t i = 0; i < list.size(); ++i) list[i]["live_growth_bytes"] = held_by(lines[i]);
    verdict.evidence["pinned_by"] = std::move(list);
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace whyrss
