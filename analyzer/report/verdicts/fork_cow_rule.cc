#include "report/verdicts/fork_cow_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "model/collector_frame.h"
#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/view/line_text.h"
#include "report/view/native_code.h"
#include "report/view/trend.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Workers whose copies differ by less than this are known from their mean.
constexpr double kAlikeRatio = 1.1;
// A line with such a share of them is said to have made them.
constexpr double kAlmostAll = 0.9;

// Memory that holds CPython objects: small ones lie in pymalloc's arenas, which Python code made grow; those over 512
// bytes in malloc's [heap], where small blocks have no known allocation site. Behind the head of a large block there is
// data alone: the bytes of a bytearray, what an array or a list refers to.
bool holds_objects(const View& view, const ProcessView& process, StackId made, bool in_heap, bool in_large_block) {
  if (!process.account->python || in_large_block) return false;
  return made == kEmptyStack ? in_heap : is_python_object(view.recording->stacks, made);
}

// Of one cause about inherited memory: what holds objects, or what does not.
std::vector<const SiteView*> inherited_sites(const View& view, const ProcessView& process, Cause cause, bool objects) {
  std::vector<const SiteView*> sites;
  const CauseView* found = process.find(cause);
  if (found == nullptr) return sites;
  for (const SiteView& site : found->sites)
    if (holds_objects(view, process, site.stack, site.mapping() == "[heap]", site.in_large_block) == objects)
      sites.push_back(&site);
  return sites;
}

std::vector<const SiteView*> object_sites(const View& view, const ProcessView& process) {
  return inherited_sites(view, process, Cause::fork_cow, true);
}

// What part of the copied small blocks of malloc's [heap] is objects: who made those is known of the copies alone, and
// not of the pages.
double objects_in_heap(const View& view, const ProcessView& process) {
  const CauseView* found = process.find(Cause::fork_cow);
  const auto has_site = [&](StackId stack) {
    return stack != kEmptyStack && found != nullptr && std::ranges::count(found->sites, stack, &SiteView::stack) > 0;
  };
  std::int64_t objects = 0, all = 0;
  for (const CowSiteView& copy : process.cow_sites) {
    if (copy.in_large_block || copy.copied <= 0 || has_site(copy.allocated_at)) continue;
    all += copy.copied;
    if (holds_objects(view, process, copy.allocated_at, true, false)) objects += copy.copied;
  }
  return all > 0 ? static_cast<double>(objects) / static_cast<double>(all) : 1;
}

// Of a child: what it holds of its copies of objects, or of other memory.
std::int64_t held_copies(const View& view, const ProcessView& process, bool objects) {
  std::int64_t in_heap = 0;
  for (const SiteView* site : object_sites(view, process))
    if (site->stack == kEmptyStack) in_heap += site->growth;
  const auto no_objects =
      static_cast<std::int64_t>(static_cast<double>(in_heap) * (1 - objects_in_heap(view, process)));
  const std::int64_t held = sum_growth(inherited_sites(view, process, Cause::fork_cow, objects));
  return objects ? held - no_objects : held + no_objects;
}

// Who wrote to an object so that its page was copied: its user, who counts a reference, or the cyclic collector.
enum class Writer { user, collector };

Writer writer_of(const StackTable& stacks, StackId written_at) {
  return is_under_collector(stacks, written_at) ? Writer::collector : Writer::user;
}

// The copies of `process` as sites of the lines that wrote, or that made the memory; of objects by `writer` alone, if
// any.
std::vector<SiteView> copy_sites(const View& view, const ProcessView& process, bool objects, bool writers,
                                 std::optional<Writer> writer = {}) {
  std::vector<SiteView> sites;
  for (const CowSiteView& copy : process.cow_sites) {
    if (holds_objects(view, process, copy.allocated_at, true, copy.in_large_block) != objects) continue;
    if (writer && writer_of(view.recording->stacks, copy.written_at) != *writer) continue;
    SiteView& site = sites.emplace_back();
    site.stack = writers ? copy.written_at : copy.allocated_at;
    site.growth = copy.copied;
    site.variance = writers ? copy.variance : 0;
  }
  return sites;
}

// Of a child's `held` bytes of copies of objects, those that the collector made. A part that is not worth naming beside
// the other counts among it.
std::int64_t collected_of(const View& view, const ProcessView& process, std::int64_t held) {
  std::int64_t by_user = 0, by_collector = 0;
  for (const CowSiteView& copy : process.cow_sites) {
    if (copy.written_at == kEmptyStack || !holds_objects(view, process, copy.allocated_at, true, copy.in_large_block))
      continue;
    (writer_of(view.recording->stacks, copy.written_at) == Writer::user ? by_user : by_collector) += copy.copied;
  }
  if (by_collector <= 0) return 0;
  const double all = static_cast<double>(by_collector) + static_cast<double>(std::max<std::int64_t>(by_user, 0));
  const auto collected = static_cast<std::int64_t>(static_cast<double>(held) * static_cast<double>(by_collector) / all);
  if (!is_worth_naming(held - collected, process)) return 2 * collected >= held ? held : 0;
  return is_worth_naming(collected, process) ? collected : 0;
}

// Whether the allocator wrote there because the block was freed.
bool is_freeing(const StackTable& stacks, StackId written_at) {
  for (const FrameId id : stacks[written_at]) {
    const Frame& frame = stacks[id];
    const std::string& function = frame.function;
    const bool frees = function.find("free") != std::string::npos || function.ends_with("_Free") ||
                       function.starts_with("operator delete");
    if (frame.kind == FrameKind::python) return false;
    if (function == "PyObject_Free" || function == "_PyObject_Free") return true;
    if (!is_allocator_function(function)) return false;
    if (frees) return true;
  }
  return false;
}

struct Workers {
  std::vector<int> pids;
  std::vector<std::int64_t> copied, surely;  // of each: what it copied, most likely and at least
  std::vector<const SiteView*> sites;
  std::vector<SiteView> allocation_sites, writers;  // the same copies by who made and who wrote
  std::int64_t inherited_peak = 0;                  // of one worker, shared and copied
  std::int64_t left_peak = 0;                       // of one worker, objects not copied yet
  std::int64_t left = 0;                            // of all workers
  bool estimate = false;                            // who copied is likely, not certain
};

// Most of these copies.
bool mostly_freed(const StackTable& stacks, const std::vector<SiteView>& writers) {
  std::int64_t freed = 0, all = 0;
  for (const SiteView& site : writers) {
    all += site.growth;
    freed += is_freeing(stacks, site.stack) ? site.growth : 0;
  }
  return 2 * freed > all;
}

// " read at a.py:3", or "" where no line is known.
std::string at_line(const std::string& what, const std::vector<LineGrowth>& lines) {
  const LineGrowth* top = top_named(lines);
  if (top == nullptr || top->line.empty()) return "";
  if (top->number <= 0) return fmt::format("{} in {}", what, top->line);
  const std::string line = top->line.substr(0, top->line.rfind(" in "));
  if (2 * top->meanwhile_bytes > top->bytes) return fmt::format("{} while {} ran", what, line);
  return fmt::format("{} at {}", what, line);
}

// What one worker copied at least, and at most.
std::pair<std::int64_t, std::int64_t> copied_range(const Workers& workers) {
  return {std::ranges::min(workers.surely), std::ranges::max(workers.copied)};
}

bool are_alike(std::int64_t least, std::int64_t most) {
  return static_cast<double>(most) <= kAlikeRatio * static_cast<double>(least);
}

// Of `copied` bytes, part of what `process` copied, those that no other process can have copied instead.
std::int64_t surely_copied(const ProcessView& process, std::int64_t copied) {
  const std::int64_t least = std::max<std::int64_t>(copied - process.doubtful_copies, 0);
  return are_alike(least, copied) ? copied : least;
}

// "12 MiB to 24 MiB", "up to 24 MiB", or one size where that says it.
std::string range_text(std::int64_t least, std::int64_t most) {
  if (least == 0) return fmt::format("up to {}", size_text(most));
  return least == most ? size_text(most) : fmt::format("{} to {}", size_text(least), size_text(most));
}

// "; objects made at a.py:3", with what each worker copied of them, or all, where other lines made some.
std::string made_text(const Workers& workers, const std::vector<LineGrowth>& lines) {
  const LineGrowth* top = top_named(lines);
  std::int64_t all = 0;
  for (const LineGrowth& line : lines) all += std::max<std::int64_t>(line.bytes, 0);
  if (top == nullptr || all <= 0) return "";
  const double share = static_cast<double>(top->bytes) / static_cast<double>(all);
  if (share >= kAlmostAll) return at_line("; objects made", lines);
  const std::int64_t bytes = std::accumulate(workers.copied.begin(), workers.copied.end(), std::int64_t{0});
  const auto [least, most] = copied_range(workers);
  const bool is_each = are_alike(least, most) && workers.copied.size() > 1;
  const double part = share * static_cast<double>(bytes);
  return at_line(share > 0.5 ? "; most objects made" : "; objects made", lines) + ": " +
         size_text(static_cast<std::int64_t>(is_each ? part / static_cast<double>(workers.copied.size()) : part)) +
         (is_each                      ? " each"
          : workers.copied.size() == 1 ? ""
                                       : fmt::format(" of {} copied in all", size_text(bytes)));
}

std::string workers_text(const Workers& workers) {
  const auto [least, most] = copied_range(workers);
  if (workers.copied.size() == 1)
    return fmt::format("1 worker (pid {}) copied {} of what it inherited", workers.pids.front(),
                       range_text(least, most));
  const std::int64_t sum = std::accumulate(workers.copied.begin(), workers.copied.end(), std::int64_t{0});
  const auto count = static_cast<std::int64_t>(workers.copied.size());
  const std::string each = are_alike(least, most) ? size_text(sum / count) : range_text(least, most);
  return fmt::format("{} workers copied {} each of what they inherited", count, each);
}

void report_certainty(bool estimate, Verdict& verdict) {
  verdict.evidence["estimate"] = estimate;
  if (estimate) verdict.why += " Which process copied is likely, not certain: the kernel did not report all writes.";
}

struct CopyWords {
  const char* id;
  bool by_collector = false;
  std::string wrote;  // "read", as in "read at a.py:3"
  std::string why, advice;
};

CopyWords words_of_collector() {
  return {.id = "fork-cow-collector",
          .by_collector = true,
          .wrote = {},
          .why =
              "CPython's cyclic garbage collector writes into the header of each container that it examines, so that a "
              "collection in a worker copies what the worker inherited, used or not. ",
          .advice =
              "Call gc.freeze() in the parent after loading, before the workers start: the collector then leaves these "
              "objects alone (gc.disable() while loading keeps them together). What a worker's own code reads is "
              "still copied, by its reference counts."};
}

CopyWords words_of_user(bool freed, bool also_collector) {
  const std::string instead =
      "Keep such data in a few large buffers instead of many objects (numpy array, torch tensor, "
      "multiprocessing.shared_memory, a mapped file), or let each worker load only its part. gc.freeze() does not "
      "help" +
      std::string(also_collector ? " against these." : ".");
  if (freed)
    return {.id = "fork-cow-refcount",
            .wrote = "freed",
            .why =
                "Freeing a block writes to its page, so freeing inherited objects copies their pages instead of giving "
                "any back. ",
            .advice = "Let the worker keep what it inherited, or free it in the parent before the fork. " + instead};
  return {.id = "fork-cow-refcount",
          .wrote = "read",
          .why =
              "CPython writes a reference count into every object it reads, so reading inherited objects copies their "
              "pages. ",
          .advice = instead};
}

// Since when none of these workers copied any more.
std::optional<double> copied_until(const View& view, const std::vector<int>& pids) {
  std::optional<double> since_s;
  for (const ProcessView& process : view.processes) {
    const CauseView* copies = process.find(Cause::fork_cow);
    if (copies == nullptr || std::ranges::find(pids, process.account->pid) == pids.end()) continue;
    const Trend trend = trend_of(view.recording->stacks, process, *copies);
    if (trend.kind != Trend::Kind::flat) return std::nullopt;
    since_s = std::max(since_s.value_or(trend.since_s), trend.since_s);
  }
  return since_s;
}

Verdict object_verdict(const View& view, std::optional<int> parent, const Workers& workers, const CopyWords& words) {
  // Who made small blocks of [heap] is known of the copies, and not of the pages.
  std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(workers.allocation_sites));
  if (top_named(lines) == nullptr) lines = growth_by_line(view.recording->stacks, workers.sites);
  const std::vector<LineGrowth> writers = growth_by_line(view.recording->stacks, pointers(workers.writers));
  Verdict verdict{.id = words.id, .severity = Severity::warning, .pid = parent};
  for (const std::int64_t bytes : workers.copied) verdict.bytes += bytes;
  std::string how = made_text(workers, lines);
  if (words.by_collector)
    how = " by the garbage collector" + at_line("", writers) + how;
  else
    how += at_line((how.empty() ? "; objects " : ", ") + words.wrote, writers);
  verdict.headline = fmt::format("{} ({}fork COW{})", workers_text(workers), workers.estimate ? "likely " : "", how);
  verdict.why = fmt::format(
      "{}RSS does not show it, PSS and USS do. It stops when all that a worker inherited ({}) is copied; {} of objects "
      "are left.",
      words.why, size_text(workers.inherited_peak), size_text(workers.left_peak));
  if (const auto until_s = copied_until(view, workers.pids))
    verdict.why +=
        fmt::format(" It has not grown since {}: the work may need no more of them.", seconds_text(*until_s));
  verdict.advice = words.advice;
  verdict.covered_pids = workers.pids;
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < workers.pids.size(); ++i)
    list.push_back(
        {{"pid", workers.pids[i]}, {"copied_bytes", workers.copied[i]}, {"copied_at_least_bytes", workers.surely[i]}});
  verdict.evidence["workers"] = std::move(list);
  report_certainty(workers.estimate, verdict);
  verdict.evidence["copied_bytes"] = verdict.bytes;
  verdict.evidence["inherited_bytes_per_worker"] = workers.inherited_peak;
  verdict.evidence["left_to_copy_bytes_per_worker"] = workers.left_peak;
  verdict.evidence["left_to_copy_bytes"] = workers.left;
  verdict.evidence["bound_bytes"] = verdict.bytes + workers.left;
  verdict.evidence["written_at"] = line_evidence(writers);
  auto line_list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < lines.size() && i < 5; ++i)
    line_list.push_back({{"line", lines[i].line},
                         {"file", lines[i].file},
                         {"number", lines[i].number},
                         {"copied_bytes", lines[i].bytes}});
  verdict.evidence["allocated_at"] = std::move(line_list);
  return verdict;
}

bool is_object_copy(const View& view, const ProcessView& process) {
  return process.account->born_by_fork && is_worth_naming(held_copies(view, process, true), process);
}

// Pages that another process maps too: the last process that has such a page needs no copy, so it is at most so much.
std::int64_t left_to_copy(const std::vector<const SiteView*>& sites) {
  std::int64_t left = 0;
  for (const SiteView* site : sites) left += std::max<std::int64_t>(site->resident - site->exclusive, 0);
  return left;
}

void add_worker(const View& view, const ProcessView& process, Writer writer, std::int64_t copied, Workers& workers) {
  const std::vector<const SiteView*> sites = object_sites(view, process);
  workers.pids.push_back(process.account->pid);
  workers.estimate |= process.copies_estimate;
  workers.copied.push_back(copied);
  workers.surely.push_back(surely_copied(process, copied));
  workers.sites.insert(workers.sites.end(), sites.begin(), sites.end());
  for (const bool writing : {false, true}) {
    const std::vector<SiteView> copies = copy_sites(view, process, true, writing, writer);
    std::vector<SiteView>& all = writing ? workers.writers : workers.allocation_sites;
    all.insert(all.end(), copies.begin(), copies.end());
  }
  std::int64_t left = 0;
  for (const SiteView* site : inherited_sites(view, process, Cause::fork_shared, true)) left += site->resident;
  workers.left_peak = std::max(workers.left_peak, left);
  workers.left += left_to_copy(inherited_sites(view, process, Cause::fork_shared, true));
  std::int64_t inherited = 0;
  for (const Cause cause : {Cause::fork_cow, Cause::fork_shared})
    if (const CauseView* found = process.find(cause)) inherited += found->rss.last;
  workers.inherited_peak = std::max(workers.inherited_peak, inherited);
}

// A child's by what it holds of them; a parent's own memory keeps its cause.
std::int64_t written_bytes(const View& view, const ProcessView& process) {
  if (process.account->born_by_fork) return held_copies(view, process, false);
  return sum_growth(pointers(copy_sites(view, process, false, false)));
}

bool is_write_copy(const View& view, const ProcessView& process) {
  return is_worth_naming(written_bytes(view, process), process);
}

// Of a child, what it inherited; of a parent, its own.
std::int64_t left_to_write(const View& view, const ProcessView& process) {
  if (process.account->born_by_fork) return left_to_copy(inherited_sites(view, process, Cause::fork_shared, false));
  constexpr std::array kOwnMemory{Cause::heap_live,    Cause::heap_slack, Cause::heap_retained, Cause::heap_metadata,
                                  Cause::heap_unsplit, Cause::anonymous,  Cause::stack};
  std::int64_t left = 0;
  for (const Cause cause : kOwnMemory)
    if (const CauseView* found = process.find(cause)) left += left_to_copy(pointers(found->sites));
  return left;
}

// A block that the line which wrote to it had just made, of memory that was free before.
bool is_made_anew(const StackTable& stacks, const CowSiteView& copy) {
  const std::string made = blamed_line(stacks, copy.allocated_at);
  return !made.empty() && made == blamed_line(stacks, copy.written_at);
}

// Of one child, of all children of one parent, or of one parent.
Verdict write_verdict(const View& view, std::optional<int> pid, const std::vector<const ProcessView*>& writers) {
  std::vector<SiteView> made, wrote;
  Verdict verdict{.id = "fork-cow-write", .severity = Severity::info, .pid = pid};
  auto list = nlohmann::ordered_json::array();
  std::int64_t surely = 0, nobodys = 0, reused = 0, left = 0;
  bool estimate = false;
  const bool children = writers.front()->account->born_by_fork;
  for (const ProcessView* process : writers) {
    const std::int64_t bytes = written_bytes(view, *process);
    verdict.bytes += bytes;
    surely += surely_copied(*process, bytes);
    left += left_to_write(view, *process);
    estimate |= process->copies_estimate;
    if (process->account->pid != pid) verdict.covered_pids.push_back(process->account->pid);
    list.push_back({{"pid", process->account->pid},
                    {"copied_bytes", bytes},
                    {"copied_at_least_bytes", surely_copied(*process, bytes)}});
    for (const bool writing : {false, true}) {
      const std::vector<SiteView> sites = copy_sites(view, *process, false, writing);
      std::vector<SiteView>& all = writing ? wrote : made;
      all.insert(all.end(), sites.begin(), sites.end());
    }
    for (const CowSiteView& copy : process->cow_sites) {
      if (copy.allocated_at == kEmptyStack) nobodys += copy.copied;
      if (is_made_anew(view.recording->stacks, copy)) reused += copy.copied;
    }
  }
  const std::vector<LineGrowth> made_lines = growth_by_line(view.recording->stacks, pointers(made));
  const std::vector<LineGrowth> wrote_lines = growth_by_line(view.recording->stacks, pointers(wrote));
  std::string where = at_line("made", made_lines);
  const std::string written = at_line("written", wrote_lines);
  where += (where.empty() || written.empty() ? "" : ", ") + written;
  const std::string who = writers.size() > 1 ? fmt::format("{} workers", writers.size())
                          : children         ? fmt::format("1 worker (pid {})", writers.front()->account->pid)
                                             : std::string("the parent");
  if (estimate) where = where.empty() ? "likely" : "likely; " + where;
  verdict.headline =
      fmt::format("{} copied {}{} by writing to memory shared since fork{}", who, range_text(surely, verdict.bytes),
                  writers.size() > 1 ? " together" : "", where.empty() ? "" : " (" + where + ")");
  verdict.why = fmt::format(
      "A page that a fork made shared is copied when one of the processes writes to it while another still has it. RSS "
      "does not show it, PSS does. It stops when all is copied: {}.",
      left == 0 ? std::string("nothing is left") : fmt::format("at most {} are left", size_text(left)));
  verdict.advice =
      "If the processes need no copies of their own, put the data into shared memory, or do all writing to it before "
      "the fork.";
  // What was free when the fork came: no allocation site is known, or the line that wrote to it has allocated it anew.
  if (2 * (nobodys + reused) > verdict.bytes)
    verdict.advice +=
        " Free blocks of the allocator are copied too when they are used again: call malloc_trim(0) before the fork.";
  verdict.evidence["processes"] = std::move(list);
  verdict.evidence["copied_bytes"] = verdict.bytes;
  report_certainty(estimate, verdict);
  verdict.evidence["left_to_copy_bytes"] = left;
  verdict.evidence["bound_bytes"] = verdict.bytes + left;
  verdict.evidence["unknown_maker_bytes"] = nobodys;
  verdict.evidence["allocated_at"] = line_evidence(made_lines);
  verdict.evidence["written_at"] = line_evidence(wrote_lines);
  return verdict;
}

}  // namespace

bool is_reported_copy(const View& view, const ProcessView& process) {
  return is_object_copy(view, process) || is_write_copy(view, process);
}

std::int64_t left_to_copy(const ProcessView& process) {
  const CauseView* found = process.find(Cause::fork_shared);
  return found == nullptr ? 0 : left_to_copy(pointers(found->sites));
}

void fork_cow_objects(const View& view, std::vector<Verdict>& verdicts) {
  std::map<std::pair<std::optional<int>, Writer>, Workers> by_parent;
  for (const ProcessView& process : view.processes) {
    if (!is_object_copy(view, process)) continue;
    const std::int64_t held = held_copies(view, process, true), collected = collected_of(view, process, held);
    for (const auto& [writer, copied] : {std::pair(Writer::user, held - collected), {Writer::collector, collected}})
      if (copied > 0) add_worker(view, process, writer, copied, by_parent[{process.account->parent, writer}]);
  }
  for (const auto& [key, workers] : by_parent) {
    const auto& [parent, writer] = key;
    const bool by_collector = writer == Writer::collector;
    const bool also_collector = by_parent.contains({parent, Writer::collector});
    verdicts.push_back(object_verdict(
        view, parent, workers,
        by_collector ? words_of_collector()
                     : words_of_user(mostly_freed(view.recording->stacks, workers.writers), also_collector)));
  }
}

void fork_cow_write(const View& view, std::vector<Verdict>& verdicts) {
  std::map<std::optional<int>, std::vector<const ProcessView*>> by_parent;
  for (const ProcessView& process : view.processes) {
    if (!is_write_copy(view, process)) continue;
    if (process.account->born_by_fork)
      by_parent[process.account->parent].push_back(&process);
    else
      verdicts.push_back(write_verdict(view, process.account->pid, {&process}));
  }
  for (const auto& [parent, writers] : by_parent) verdicts.push_back(write_verdict(view, parent, writers));
}

// Its unshared memory grows by this without a write or an allocation, when others end.
void fork_left_alone(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* inherited = process.find(Cause::fork_shared);
    if (inherited == nullptr || !is_worth_naming(inherited->sole_owner.value_or(0), process)) continue;
    const std::int64_t alone = *inherited->sole_owner;
    if (2 * process.left_by_relatives < alone) continue;  // others copied theirs, which another verdict reports
    std::vector<SiteView> sites = inherited->sites;
    for (SiteView& site : sites) site.growth = site.exclusive;
    const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(sites));
    Verdict verdict{.id = "fork-left-alone", .severity = Severity::info, .pid = process.account->pid, .bytes = alone};
    verdict.headline =
        fmt::format("{} that it inherited at fork{} counts as its own now: no other process maps it any more",
                    size_text(alone), kept_where(lines, alone, "allocated"));
    verdict.why =
        "The processes that it shared these pages with have ended or given them up. Its RSS had them all the time, its "
        "PSS and USS rise as the others go: no call of it made them.";
    verdict.advice = "It stays until the process ends. One that does not need it frees it, or begins with an exec.";
    verdict.evidence["alone_bytes"] = alone;
    verdict.evidence["left_by_relatives_bytes"] = process.left_by_relatives;
    verdict.evidence["reused_bytes"] = process.reused;
    verdict.evidence["lines"] = line_evidence(lines);
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace whyrss
