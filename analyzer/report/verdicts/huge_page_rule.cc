#include "report/verdicts/huge_page_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "report/verdicts/unsplit_rule.h"
#include "report/view/line_text.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// "": not all of one allocator inside a library.
std::string of_allocator(const StackTable& stacks, const std::vector<SiteView>& unsplit, std::size_t all) {
  const std::vector<AllocatorBytes> allocators = by_allocator(stacks, Cause::heap_unsplit, unsplit);
  return unsplit.size() == all && allocators.size() == 1 ? " of " + allocators.front().text() : "";
}

}  // namespace

void huge_page_padding(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    std::vector<SiteView> padded, unsplit;  // `growth`: the padding that came with what grew
    std::int64_t padding = 0, whole = 0;
    for (const CauseView& cause : process.causes)
      for (const SiteView& site : cause.sites) {
        const std::int64_t huge = std::min(site.huge, site.growth);
        if (huge <= 0) continue;
        padding += huge;
        whole += site.growth;
        padded.push_back(site);
        padded.back().growth = huge;
        if (cause.cause == Cause::heap_unsplit) unsplit.push_back(padded.back());
      }
    if (!is_worth_naming(padding, process)) continue;
    const StackTable& stacks = view.recording->stacks;
    const std::vector<LineGrowth> lines = growth_by_line(stacks, pointers(padded));
    Verdict verdict{.id = "huge-page-padding", .pid = process.account->pid, .bytes = padding};
    verdict.headline =
        fmt::format("{} of {}{} are unused parts of 2 MiB pages{}: zeros, resident only for the size of those pages",
                    size_text(padding), size_text(whole), of_allocator(stacks, unsplit, padded.size()),
                    kept_where(lines, padding, "made"));
    verdict.why =
        "The first touch of a huge page makes all of its 2 MiB resident, filled with zeros. These parts of 4 KiB are "
        "still zero while others of the same page are not: with small pages they would most likely not be there. What "
        "whyrss cannot know is whether the program wrote zeros itself.";
    verdict.advice =
        "Keep what is used together, or have small pages here: madvise(MADV_NOHUGEPAGE) on the mapping, "
        "NUMPY_MADVISE_HUGEPAGE=0 for numpy, MALLOC_CONF=thp:never for jemalloc, prctl(PR_SET_THP_DISABLE) for the "
        "whole program. From Linux 6.12 on the kernel splits such pages itself when memory gets short.";
    verdict.evidence["padding_bytes"] = padding;
    verdict.evidence["growth_bytes"] = whole;
    verdict.evidence["lines"] = line_evidence(lines);
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace whyrss
