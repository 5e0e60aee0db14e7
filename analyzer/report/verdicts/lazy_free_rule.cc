#include "report/verdicts/lazy_free_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "report/view/line_text.h"
#include "report/view/series.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

std::string reclaim_advice_for(const ProcessView& process) {
  std::string advice =
      "Nothing to fix. Where RSS itself is the trouble (a scheduler that adds it up), MADV_DONTNEED gives pages back "
      "at once";
  if (process.account->allocator == "jemalloc") advice += ", for jemalloc's own MALLOC_CONF=muzzy_decay_ms:0";
  return advice + ".";
}

constexpr double kWalkedTogetherS = 0.25;

struct Lazy {
  std::int64_t bytes = 0, exclusive_bytes = 0;
  friend auto operator<=>(const Lazy&, const Lazy&) = default;
};

Lazy lazy_of(const Account& account) {
  Lazy lazy;
  for (const Slice& slice : account.slices) {
    if (slice.site.cause != Cause::lazy_free) continue;
    lazy.bytes += slice.bytes;
    lazy.exclusive_bytes += slice.exclusive_bytes;
  }
  return lazy;
}

}  // namespace

std::int64_t lazy_free_at(const RecordingAccount& recording, double time_s) {
  std::int64_t sum = 0, most_shared = 0;
  for (const ProcessAccount& process : recording.processes) {
    const bool lives = process.born_s <= time_s && process.ended_s.value_or(time_s) >= time_s;
    const Account* before = lives ? last_at(process.accounts, time_s) : nullptr;
    if (before == nullptr) continue;
    Lazy lazy = lazy_of(*before);
    // Between two walks it may have been in use.
    if (const Account* after = first_after(process.accounts, time_s);
        after != nullptr && time_s - before->time_s > kWalkedTogetherS)
      lazy = std::min(lazy, lazy_of(*after));
    sum += lazy.exclusive_bytes;
    most_shared = std::max(most_shared, lazy.bytes - lazy.exclusive_bytes);
  }
  return sum + most_shared;
}

void lazy_free_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* cause = process.find(Cause::lazy_free);
    if (cause == nullptr) continue;
    // What a fork child shares its relatives tell of.
    const std::int64_t growth =
        process.account->born_by_fork ? std::min(cause->rss.growth(), cause->uss_growth) : cause->rss.growth();
    if (!is_worth_naming(growth, process)) continue;
    const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(cause->sites));
    const std::vector<LineGrowth> advisers = growth_by_advice(view.recording->stacks, pointers(cause->sites));
    Verdict verdict{.id = "lazy-free-growth", .severity = Severity::ok, .pid = process.account->pid, .bytes = growth};
    verdict.headline =
        fmt::format("{}{} given up with MADV_FREE{}: reclaimable, not a leak", cause->estimate ? "at most " : "",
                    size_text(growth), kept_where(advisers, growth, "called"));
    verdict.why =
        "The program, or its allocator, has said that it does not need what is on these pages (MADV_FREE). They count "
        "in RSS until the kernel needs memory, at a limit too, or until they are written to again; smaps tells how "
        "many there are.";
    if (cause->estimate) verdict.why += " What was written to again since the last walk is not known.";
    verdict.advice = reclaim_advice_for(process);
    verdict.evidence["growth_bytes"] = growth;
    verdict.evidence["lines"] = line_evidence(lines);
    verdict.evidence["advised_by"] = line_evidence(advisers);
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace whyrss
