#include "report/verdicts/accounting_rule.h"

#include <fmt/format.h>

#include <utility>

#include "report/view/memory_accounting.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {

void rss_double_counted(const View& view, std::vector<Verdict>& verdicts) {
  const AccountingView& accounting = view.family.accounting;
  const auto& fullest = accounting.peak;
  if (view.recording->processes.size() < 2 || !fullest || !fullest->pss) return;
  const std::int64_t rss = fullest->rss, pss = *fullest->pss;
  if (rss - pss < kDoubleCountedBytes || static_cast<double>(rss) < kDoubleCountedRatio * static_cast<double>(pss))
    return;
  Verdict verdict{.id = "rss-double-counted", .severity = Severity::info, .bytes = rss - pss};
  verdict.headline = fmt::format(
      "RSS summed over the processes ({}) counts shared memory several times: together they had {} (PSS{}), when they "
      "had most",
      size_text(rss), size_text(pss), fullest->estimate ? ", an estimate" : "");
  verdict.why = fmt::format(
      "A page that several processes map counts in the RSS of each; they had most at {}. At their peaks Slurm's "
      "jobacct_gather would say {} by default, {} with UsePss, and {} with NoShared, which leaves out files and shared "
      "memory but not what a fork shares.",
      seconds_text(fullest->time_s), size_text(accounting.rss_sum), size_text(view.family.pss.peak.value_or(pss)),
      size_text(accounting.rss_less_shared));
  verdict.advice =
      "Nothing to fix in the program. Have the limit count PSS (JobAcctGatherParams=UsePss) or a memory cgroup "
      "(task/cgroup with ConstrainRAMSpace=yes), and compare PSS when you compare runs.";
  verdict.evidence["rss_sum_bytes"] = rss;
  verdict.evidence["pss_sum_bytes"] = pss;
  verdict.evidence["rss_less_shared_bytes"] = accounting.rss_less_shared;
  verdicts.push_back(std::move(verdict));
}

}  // namespace whyrss
