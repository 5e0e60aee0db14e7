#include "report/verdicts/unsplit_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "model/library_allocator.h"
#include "report/verdicts/growth_parts.h"
#include "report/view/blame.h"
#include "report/view/line_text.h"
#include "report/view/trend.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// How to see what is in use, and how to get back the rest.
struct Remedy {
  std::string_view name, kind;  // "": of any
  std::string_view in_use, way_back;
};
// Measured with pyarrow 26 and 200 MiB in buffers of 4 KiB to 4 MiB, of which 1/8 were kept: release_unused() gave back
// none to 30 % of what was free below 1 MiB, nearly all from there on; all where none was kept. Of jemalloc it gave
// back nothing, and jemalloc_set_decay_ms(0) next to nothing; of malloc 80 % and more.
constexpr std::array<Remedy, 7> kRemedies{{
    {"Arrow's memory pool", "jemalloc", "pyarrow.total_allocated_bytes() says how much of it is in use.",
     "release_unused() of the pool gives back next to nothing here; with ARROW_DEFAULT_MEMORY_POOL=system Arrow takes "
     "its memory from malloc, and release_unused() gives back most of what is free."},
    {"Arrow's memory pool", "", "pyarrow.total_allocated_bytes() says how much of it is in use.",
     "pyarrow.default_memory_pool().release_unused() gives back what is free, but little of it where live buffers "
     "below 1 MiB lie between; with ARROW_DEFAULT_MEMORY_POOL=system, where Arrow takes its memory from malloc, that "
     "call gives back most."},
    {"Polars' allocator", "", "",
     "_RJEM_MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0, set before polars is imported, makes it give back what is "
     "freed at once: what is there then is in use."},
    {"DuckDB's allocator", "", "FROM duckdb_memory() says how much of it is in use.",
     "SET memory_limit bounds it; closing the connection frees it."},
    {"", "jemalloc", "Its own statistics (mallctl stats.allocated) say how much of it is in use.",
     "With dirty_decay_ms:0,muzzy_decay_ms:0 in its MALLOC_CONF (in Rust programs _RJEM_MALLOC_CONF) it gives back at "
     "once what is freed."},
    {"", "mimalloc", "MIMALLOC_SHOW_STATS=1 prints how much of it is in use.",
     "With MIMALLOC_PURGE_DELAY=0 it gives back at once what is freed."},
    {"", "", "", "See the allocator's own statistics and settings."},
}};

const Remedy& remedy_for(const AllocatorBytes& allocator) {
  const auto fits = [&](const Remedy& remedy) {
    return (remedy.name.empty() || remedy.name == allocator.name) &&
           (remedy.kind.empty() || remedy.kind == allocator.kind);
  };
  return *std::ranges::find_if(kRemedies, fits);
}

}  // namespace

std::string AllocatorBytes::text() const { return fmt::format("{} ({})", printable(name), kind); }

std::string_view way_back(const AllocatorBytes& allocator) { return remedy_for(allocator).way_back; }

std::vector<AllocatorBytes> by_allocator(const StackTable& stacks, Cause cause, const std::vector<SiteView>& sites) {
  std::map<std::pair<std::string, std::string_view>, AllocatorBytes> found;
  for (const SiteView& site : sites) {
    const auto allocator = allocator_of(stacks, cause, site.stack);
    if (!allocator) continue;
    const std::string& library = stacks[allocator->library].path;
    AllocatorBytes& bytes = found[{library, allocator->kind}];
    bytes.name = allocator_name(library);
    bytes.kind = allocator->kind;
    bytes.library = library;
    bytes.growth += site.growth;
    bytes.resident += site.resident;
    bytes.sites.push_back(site);
  }
  std::vector<AllocatorBytes> list;
  for (auto& [key, bytes] : found) list.push_back(std::move(bytes));
  std::ranges::stable_sort(list, std::ranges::greater{}, &AllocatorBytes::growth);
  return list;
}

void allocator_growth(const View& view, std::vector<Verdict>& verdicts) {
  const StackTable& stacks = view.recording->stacks;
  for (const ProcessView& process : view.processes) {
    const CauseView* whole = process.find(Cause::heap_unsplit);
    if (whole == nullptr || whole->rss.growth() < kNamedGrowthBytes) continue;
    const CauseView cause = without_imports(stacks, *whole);
    for (const AllocatorBytes& allocator : by_allocator(stacks, cause.cause, cause.sites)) {
      if (!is_worth_naming(allocator.growth, process)) continue;
      const std::vector<LineGrowth> lines = growth_by_line(stacks, pointers(allocator.sites));
      Verdict verdict{
          .id = "allocator-growth", .severity = Severity::info, .pid = process.account->pid, .bytes = allocator.growth};
      const bool alone = dominates(allocator.growth, whole->rss.growth());
      const Trend trend = alone ? trend_of(stacks, process, *whole) : Trend{};
      verdict.bytes_per_s = trend.bytes_per_s;
      verdict.headline = fmt::format(
          "{} of {}, in use or free is not known{}{}", size_text(allocator.growth), allocator.text(),
          kept_where(lines, allocator.growth, "mapped", touch_verb(Cause::heap_unsplit)), trend_text(trend, lines));
      verdict.why = fmt::format(
          "The allocator in {} maps memory by itself, past malloc, and keeps what is freed for what comes next. The "
          "line is the one for which it mapped memory: what lies there now may be another one's, or free.",
          printable(base_name(allocator.library)));
      const Remedy& remedy = remedy_for(allocator);
      verdict.advice = fmt::format("{}{}{}", remedy.in_use, remedy.in_use.empty() ? "" : " ", remedy.way_back);
      verdict.evidence["cause"] = info(Cause::heap_unsplit).slug;
      verdict.evidence["allocator"] = allocator.name;
      verdict.evidence["kind"] = allocator.kind;
      verdict.evidence["library"] = allocator.library;
      verdict.evidence["growth_bytes"] = whole->rss.growth();  // of all allocators, imports included
      verdict.evidence["allocator_growth_bytes"] = allocator.growth;
      verdict.evidence["trend"] = trend_evidence(trend);
      verdict.evidence["lines"] = line_evidence(lines);
      verdicts.push_back(std::move(verdict));
    }
  }
}

}  // namespace whyrss
