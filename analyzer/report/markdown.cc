#include "report/markdown.h"

#include <fmt/format.h>

#include "report/accounting_text.h"
#include "report/allocator_figures.h"
#include "report/call_chains.h"
#include "report/cow_text.h"
#include "report/format.h"
#include "report/process_text.h"
#include "report/sections.h"

namespace whyrss {
namespace {

std::string list(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = "\n## " + title + "\n\n";
  for (const std::string& line : lines) out += "- " + markdown_escaped(line) + "\n";
  return out;
}

}  // namespace

std::string render_markdown(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style) {
  std::string out = "# Why RSS grew\n\n" + markdown_escaped(recording_line(view)) + "\n\n";
  const std::vector<ToldProcess> told = told_processes(view, verdicts);
  for (const Verdict& verdict : verdicts) {
    if (is_alike(told, verdict.pid)) continue;
    const std::string who = verdict.pid ? fmt::format("pid {}: ", *verdict.pid) : "";
    out += fmt::format("- **{}** {}{}  \n  {}  \n  {}\n", slug(verdict.severity), who,
                       markdown_escaped(printable(verdict.headline)), markdown_escaped(printable(verdict.why)),
                       markdown_escaped(printable(verdict.advice)));
  }
  for (const ToldProcess& one : told)
    if (!one.alike.empty()) out += fmt::format("- pid {}: {}\n", one.process->account->pid, alike_text(one));
  out += "\n## Memory by process and cause, MiB\n\n" + cause_table(view).markdown();
  if (style.by_touch)
    out += "\n## Lines that made the most memory resident, MiB\n\n" + touch_table(view, style.top).markdown();
  else
    out += "\n## Lines with the most growth, MiB\n\n" + line_table(view, style.top).markdown();
  if (style.stacks) {
    out += "\n## Callers of the lines with the most growth\n\n```\n";
    for (const std::string& line : call_chain_lines(view, style.top)) out += line + "\n";
    out += "```\n";
  }
  out += "\n## Processes, MiB\n\n" + process_table(view).markdown();
  out += list("Memory shared by forks", cow_lines(view, style.top));
  out += list("All processes together", family_lines(view));
  if (const std::string title = accounting_title(view); !title.empty())
    out += "\n## " + title + "\n\n" + accounting_table(view).markdown() + "\n" +
           accounting_process_table(view, style.top).markdown();
  out += list("What the allocators say themselves", allocator_lines(view));
  out += list("What was lost", loss_lines(view));
  out += list("What this recording cannot tell", limit_lines(view));
  return out;
}

}  // namespace whyrss
