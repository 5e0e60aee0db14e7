#include "report/render/markdown.h"

#include <fmt/format.h>

#include <utility>

#include "report/render/accounting_text.h"
#include "report/render/allocator_figures.h"
#include "report/render/cow_text.h"
#include "report/render/process_text.h"
#include "report/render/sections.h"
#include "report/render/timeline.h"
#include "report/view/call_chains.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"

namespace whyrss {
namespace {

std::string list(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = "\n## " + title + "\n\n";
  for (const std::string& line : lines) out += "- " + markdown_escaped(line) + "\n";
  return out;
}

// What GitHub takes of a step, 1 MiB, less than which one of its own must leave; and all that people read.
constexpr std::size_t kMostBytes = 1'000'000, kMostVerdicts = 100;

// At the end of a line, however long the names in it are.
std::string bounded(std::string text) {
  if (text.size() <= kMostBytes) return text;
  const std::size_t end = text.rfind('\n', kMostBytes);
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text + "\nThe rest is left out here: it would be over 1 MB.\n";
}

}  // namespace

std::string render_markdown(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style) {
  std::string out = "# Why RSS grew\n\n" + markdown_escaped(recording_line(view)) + "\n\n";
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  std::size_t shown = 0;
  for (const Verdict& verdict : verdicts) {
    if (is_passed_over(sections, verdict) || shown++ >= kMostVerdicts) continue;
    const std::string who = verdict.pid ? fmt::format("pid {}: ", *verdict.pid) : "";
    out += fmt::format("- **{}** {}{}  \n  {}  \n  {}\n", slug(verdict.severity), who,
                       markdown_escaped(printable(verdict.headline)), markdown_escaped(printable(verdict.why)),
                       markdown_escaped(printable(verdict.advice)));
  }
  if (shown > kMostVerdicts)
    out += fmt::format("- {} {} left out here\n", counted(shown - kMostVerdicts, "more verdict"),
                       shown == kMostVerdicts + 1 ? "is" : "are");
  for (const ProcessSection& one : sections)
    if (!one.alike.empty()) out += fmt::format("- pid {}: {}\n", one.process->account->pid, alike_text(view, one));
  out += "\n## " + cause_title(view) + "\n\n" + cause_table(view, sections, style.top).markdown();
  if (const auto table = timeline_table(view, sections))
    out += "\n## " + timeline_title(view) + "\n\n" + table->markdown();
  if (const auto table = phase_table(view, style.top))
    out += "\n## " + phase_title(view, style.top) + "\n\n" + table->markdown();
  out += list("Marks", mark_lines(view, style.top));
  if (style.by_touch)
    out += "\n## Lines that made the most memory resident, MiB\n\n" + touch_table(view, style.top).markdown();
  else
    out += "\n## Lines with the most growth, MiB\n\n" + line_table(view, style.top).markdown();
  if (style.stacks) {
    out += "\n## Callers of the lines with the most growth\n\n```\n";
    for (const std::string& line : call_chain_lines(view, style.top)) out += line + "\n";
    out += "```\n";
  }
  out += "\n## Processes, MiB\n\n" + process_table(view, sections, style.top).markdown();
  out += list("Memory shared by forks", cow_lines(view, style.top));
  out += list("All processes together", family_lines(view));
  if (const std::string title = accounting_title(view); !title.empty())
    out += "\n## " + title + "\n\n" + accounting_table(view).markdown() + "\n" +
           accounting_process_table(view, style.top).markdown();
  out += list("What the allocators say themselves", allocator_lines(view));
  out += list("What was lost", loss_lines(view, style.top));
  out += list("What this recording cannot tell", limit_lines(view, style.top));
  if (const std::string cost = cost_line(view); !cost.empty()) out += "\n" + markdown_escaped(cost) + "\n";
  return bounded(std::move(out));
}

}  // namespace whyrss
