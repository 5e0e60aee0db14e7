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
#include "report/view/final_frees.h"
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
     "malloc_trim(0) after the work gives back nearly all of what it keeps, but for the free end of each arena that "
     "threads have; jemalloc (LD_PRELOAD=libjemalloc.so.2 "
     "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0) keeps less, and where dozens of threads allocate "
     "MALLOC_ARENA_MAX=2 may too."},
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
    "CPython gives an arena (1 MiB, 256 KiB before 3.10) back when no object is left in it, and a few small ones hold "
    "many: make what lives long before what lives short, copy what is left once the rest is freed "
    "(kept = pickle.loads(pickle.dumps(kept))), or do such work in a child process that ends.";

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

std::vector<LineGrowth> lines_of(const View& view, const CauseView& cause) {
  return growth_by_line(view.recording->stacks, pointers(cause.sites));
}

// "486 KiB ± 30 %".
std::string with_error(const LineGrowth& line) { return size_text(line.bytes) + error_text(line.bytes, line.variance); }

// Where one line has grown by much more than all together.
std::string less_elsewhere_text(const std::vector<LineGrowth>& lines, std::int64_t growth) {
  constexpr std::int64_t kNotedPart = 10;
  const LineGrowth* top = top_named(lines);
  const std::int64_t less = top == nullptr ? 0 : top->bytes - growth;
  return less < kNamedGrowthBytes || kNotedPart * less < growth
             ? ""
             : fmt::format(", {} less at other lines", size_text(less));
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

// "a.py:7 in f and a.py:9 in g"; "" where the headline's lines are meant.
std::string growing_lines_text(const Trend& trend) {
  if (const LineGrowth* line = growing_line(trend); line != nullptr) return line->line;
  if (trend.kind != Trend::Kind::growing || trend.lines.empty()) return "";
  const std::vector<LineGrowth> lines = growing_lines(trend);
  return lines.empty() ? "the lines that still grow"
                       : enumerated(lines, [](const LineGrowth& one) { return one.line; });
}

// For twice as long as it grew: a leak would have gone on.
bool rests_long(const Trend& trend) { return trend.since_s - trend.from_s <= trend.span_s / 3; }

// Only the program's author knows whether it is a leak; what the recording says for and against it.
std::string growth_advice(const Trend& trend, bool by_arena, std::string_view holders) {
  if (trend.filling) return filling_text(trend);
  const LineGrowth* line = growing_line(trend);
  const std::string lines = by_arena ? "where it was made" : growing_lines_text(trend);
  // What a thread is given to do, and by which line, its starter does not tell.
  const bool of_thread = line != nullptr && 2 * line->thread_bytes > line->bytes;
  const std::string from = lines.empty() || of_thread ? "" : fmt::format(" from {} on", lines);
  if (trend.kind == Trend::Kind::growing && trend.evenly)
    return (trend.since_s <= trend.from_s ? std::string("It grew evenly all the time")
                                          : fmt::format("From {} on it grew evenly to the end, by {}",
                                                        seconds_text(trend.since_s), size_text(trend.bytes))) +
           fmt::format(", as a leak does: look for what keeps it{}: {}.", from, holders);
  if (trend.kind != Trend::Kind::growing && line != nullptr)
    return fmt::format(
        "All together did not grow to the end, but what stands under {} did, evenly, by {}. If it does not take the "
        "place of other data, look for what keeps it from that line on: {}.",
        line->line, size_text(line->bytes), holders);
  if (trend.kind == Trend::Kind::flat && trend.climbed_bytes > 0)
    return fmt::format(
        "It grew evenly until {}, and not since: its work was done, or what asks for it paused. If it should have been "
        "freed, look for what keeps it{}: {}.",
        seconds_text(trend.since_s), from, holders);
  if (trend.kind == Trend::Kind::flat)
    return fmt::format(
        "It has not grown since {}: data that the program keeps, a cache that is full, or its work was done. {}f it "
        "should have been freed, look for what keeps it{}: {}.",
        seconds_text(trend.since_s),
        rests_long(trend) ? "If its work went on, no leak as far as this recording goes; i" : "I", from, holders);
  if (trend.kind == Trend::Kind::waves)
    return fmt::format(
        "It fell {} times by half of this or more and came back: what the program works with at a time. No leak as far "
        "as this recording goes; if the peak is the trouble, make the line hold less at a time.",
        trend.falls);
  const bool is_short = trend.kind == Trend::Kind::unknown && trend.span_s < kTrendSpanS;
  return fmt::format(
      "Expected if the program needs this data at once.{} If it should have been freed, look for what keeps it{}: {}.",
      is_short ? " So short a run does not tell whether it would go on growing." : "", from, holders);
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

}  // namespace

namespace {

// What a rule finds of a process as it was before it freed its heap, with the moment that this is of.
void apply_before(void (*rule)(const View&, std::vector<Verdict>&), const FinalFrees& frees,
                  fmt::format_string<std::string> until, std::vector<Verdict>& verdicts) {
  const std::size_t first = verdicts.size();
  rule(frees.before, verdicts);
  for (std::size_t i = first; i < verdicts.size(); ++i) {
    verdicts[i].headline += fmt::format(until, seconds_text(frees.until_s));
    verdicts[i].evidence["until_s"] = frees.until_s;
  }
}

}  // namespace

std::string freed_late_text(const View& view, const ProcessView& process) {
  if (process.final_frees == nullptr || process.final_frees->heap != FinalFrees::Heap::late) return "";
  return fmt::format(", freed in its last {}",
                     seconds_text(end_of_work(*view.recording, *process.account) - process.final_frees->until_s));
}

void heap_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    if (held_heap(process)) {
      apply_before(heap_growth, *process.final_frees, ", freed only as it ended, after {}", verdicts);
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
    verdict.headline += less_elsewhere_text(lines, growth) + trend_text(trend, lines);
    const bool at_end = process.interval.to_s >= end_of_work(*view.recording, *process.account);
    const LineGrowth* const top = top_named(lines);
    verdict.why = fmt::format("The program allocated this{} and {}{}.",
                              objects        ? " for Python objects"
                              : some_objects ? fmt::format(" ({} of it for Python objects)", size_text(object_growth))
                                             : "",
                              !at_end                       ? "had not freed it by then"
                              : process.account->teardown_s ? "had not freed it when it began to exit"
                                                            : "has not freed it",
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

constexpr const char* kLivedToTheEnd =
    "Nothing to do about this: it was live as long as the program worked, and is the same memory as its live heap.";

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
  const bool was_live = is_most && held_heap(process);
  if (was_live) verdict.severity = Severity::info;
  verdict.headline = fmt::format(
      "{} freed{}, but kept by {}{}{}{}", size_text(allocator.growth), was_live ? " as it ended" : "", allocator.text(),
      kept_where(lines, allocator.growth, "last allocated"), is_most ? freed_late_text(view, process) : "",
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
    const std::int64_t kept = whole == nullptr ? 0 : whole->rss.growth();
    const bool was_live = held_heap(process);
    if (was_live) {
      const ProcessView& then = process.final_frees->process();
      const std::int64_t free = last_bytes(then, Cause::heap_retained) + last_bytes(then, Cause::heap_slack);
      if (!is_worth_naming(kept, process) || !dominates(kept - free, kept)) {
        apply_before(heap_retained, *process.final_frees, "; until {}", verdicts);
        continue;
      }
    }
    if (!is_worth_naming(kept, process)) continue;
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
    const FinalFrees* const final_frees =
        process.final_frees != nullptr && process.final_frees->heap != FinalFrees::Heap::as_before
            ? process.final_frees.get()
            : nullptr;
    const std::string late = freed_late_text(view, process);
    if (was_live || !late.empty()) verdict.severity = Severity::info;
    verdict.headline =
        fmt::format("{}{} freed{}, but kept by {}{}{}{}", cause.estimate ? "about " : "", size_text(growth),
                    was_live ? " as it ended" : "", names_of(holders, process), kept_where(lines, growth, verb), late,
                    was_live ? "" : ": not a leak, and not reclaimable by the kernel");
    const CauseView* live = process.find(Cause::heap_live);
    const bool with_imports =
        live != nullptr &&
        live->rss.last - without_imports(view.recording->stacks, *live).rss.last >= kNamedGrowthBytes;
    verdict.why = fmt::format(
        "The program freed all blocks on these pages; {} of the heap is still live{}. The allocator keeps the pages "
        "for later allocations: they count in RSS, and a memory limit kills rather than takes them.",
        size_text(live_bytes), with_imports ? ", what imports made among it" : "");
    if (final_frees != nullptr)
      verdict.why += fmt::format(
          " Most of it was freed within the last {}, by the program or by destructors that run when it ends; `whyrss "
          "report --to {:.3f}` shows what it held before.",
          seconds_text(end_of_work(*view.recording, *process.account) - final_frees->until_s),
          final_frees->until_s + 0.0005);
    const auto freed = freed_between(process, growth);
    if (freed && freed->at_once && final_frees == nullptr)
      verdict.why += fmt::format(" Most of it was freed {}.", two_times("between", freed->after_s, "and", freed->by_s));
    if (freed && !freed->at_once && final_frees == nullptr)
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
    verdict.evidence["live_until_s"] = final_frees != nullptr ? nlohmann::ordered_json(final_frees->until_s) : nullptr;
    verdict.evidence["freed_between_s"] =
        freed ? nlohmann::ordered_json::array({freed->after_s, freed->by_s}) : nlohmann::ordered_json(nullptr);
    verdict.evidence["estimate"] = cause.estimate;
    verdict.evidence["last_allocated_at"] = line_evidence(lines);
    verdicts.push_back(std::move(verdict));
  }
}

void heap_fragmented(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    if (held_heap(process)) {
      apply_before(heap_fragmented, *process.final_frees, ", until {}", verdicts);
      continue;
    }
    const CauseView* cause = process.find(Cause::heap_slack);
    if (cause == nullptr || !is_worth_naming(cause->rss.growth(), process)) continue;
    const auto is_estimate = [&](double time_s) {
      const Account* then = last_at(process.account->accounts, time_s);
      return then != nullptr && !then->has_liveness;
    };
    // The peak may be one.
    if (cause->estimate && (is_estimate(process.interval.from_s) || is_estimate(process.interval.to_s))) continue;
    const std::int64_t growth = cause->rss.growth();
    const std::int64_t live_bytes = last_bytes(process, Cause::heap_live);
    if (!is_fragmented(cause->rss.last, live_bytes)) continue;
    const CauseView* live = process.find(Cause::heap_live);
    const std::vector<LineGrowth> lines = lines_of(view, *cause);
    const std::vector<LineGrowth> live_lines = live == nullptr ? std::vector<LineGrowth>{} : lines_of(view, *live);
    const auto held_by = [&](const LineGrowth& pinning) {
      for (const LineGrowth& line : live_lines)
        if (line.line == pinning.line && line.file == pinning.file) return line;
      return LineGrowth{};
    };
    Verdict verdict{
        .id = "heap-fragmented", .severity = Severity::warning, .pid = process.account->pid, .bytes = growth};
    verdict.headline = fmt::format("{} free, but pinned by live blocks on the same pages", size_text(growth));
    const bool by_arena = known_by_arena(view, process, growth, process.pymalloc_growth.slack);
    if (by_arena)
      verdict.headline += kept_where(lines, growth, "in arenas mapped");
    else if (const LineGrowth* top = top_named(lines); top != nullptr && !mostly_unseen(lines, growth))
      verdict.headline +=
          fmt::format(": {} allocated {} pin {}", with_error(held_by(*top)), placed_text(*top), with_error(*top));
    verdict.why = fmt::format(
        "A page goes back only when nothing on it is live. Here live blocks lie scattered over pages whose other "
        "blocks "
        "were freed; {} of the heap are live in all.",
        size_text(live_bytes));
    verdict.advice =
        "Allocate what lives long apart from what lives short: before it, in a pool of its own, or copied together "
        "once the rest is freed.";
    if (!view.in_notebook)
      verdict.advice += " Allocators pin differently much: `whyrss compare-allocators` measures it.";
    if (holders_of(growth, process.pymalloc_growth.slack).pymalloc)
      verdict.advice +=
          " In CPython: make what lives long first, copy what is left (kept = pickle.loads(pickle.dumps(kept))), or do "
          "the work in a child process that ends.";
    if (by_arena) verdict.advice += fmt::format(" {}", next_steps(view).object_lines);
    verdict.evidence["growth_bytes"] = growth;
    verdict.evidence["slack_bytes"] = cause->rss.last;
    verdict.evidence["live_bytes"] = live_bytes;
    verdict.evidence["pymalloc_growth_bytes"] = process.pymalloc_growth.slack;
    auto list = line_evidence(lines);
    for (std::size_t i = 0; i < list.size(); ++i) list[i]["live_growth_bytes"] = held_by(lines[i]).bytes;
    verdict.evidence["pinned_by"] = std::move(list);
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace whyrss
