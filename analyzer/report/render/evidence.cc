#include "report/render/evidence.h"

#include <utility>

#include "report/render/accounting_text.h"
#include "report/render/allocator_figures.h"
#include "report/render/cow_text.h"
#include "report/render/sections.h"
#include "report/render/timeline.h"
#include "report/view/call_chains.h"

namespace whyrss {

std::vector<EvidencePart> evidence_parts(const View& view, const std::vector<ProcessSection>& sections,
                                         const TextStyle& style) {
  std::vector<EvidencePart> parts;
  const auto table = [&](std::string title, Table one) {
    parts.push_back({.title = std::move(title), .tables = {std::move(one)}});
  };
  const auto list = [&](std::string title, std::vector<std::string> lines, bool is_tree = false) {
    if (!lines.empty()) parts.push_back({.title = std::move(title), .lines = std::move(lines), .is_tree = is_tree});
  };
  table(cause_title(view), cause_table(view, sections, style.top));
  if (auto timeline = timeline_table(view, sections)) table(timeline_title(view), std::move(*timeline));
  if (auto phases = phase_table(view, style.top)) table(phase_title(view, style.top), std::move(*phases));
  list("Marks", mark_lines(view, style.top));
  if (style.by_touch)
    table("Lines that made the most memory resident, MiB", touch_table(view, style.top));
  else
    table("Lines with the most growth, MiB", line_table(view, style.top));
  if (style.stacks) list("Callers of the lines with the most growth", call_chain_lines(view, style.top), true);
  table("Processes, MiB", process_table(view, sections, style.top));
  list("Memory shared by forks", cow_lines(view, style.top));
  list("All processes together", family_lines(view));
  if (std::string title = accounting_title(view); !title.empty())
    parts.push_back(
        {.title = std::move(title), .tables = {accounting_table(view), accounting_process_table(view, style.top)}});
  list("What the allocators say themselves", allocator_lines(view));
  list("What was lost", loss_lines(view, style.top));
  list("What this recording cannot tell", limit_lines(view, style.top));
  return parts;
}

}  // namespace whyrss
