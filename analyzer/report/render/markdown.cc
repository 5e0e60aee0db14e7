#include "report/render/markdown.h"

#include <fmt/format.h>

#include <utility>

#include "report/render/evidence.h"
#include "report/render/process_text.h"
#include "report/render/sections.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"

namespace whyrss {
namespace {

std::string part_text(const EvidencePart& part) {
  std::string out = fmt::format("\n## {}\n", part.title);
  for (const Table& table : part.tables) out += fmt::format("\n{}", table.markdown());
  if (part.lines.empty()) return out;
  out += part.is_tree ? "\n```\n" : "\n";
  for (const std::string& line : part.lines)
    out += part.is_tree ? fmt::format("{}\n", line) : fmt::format("- {}\n", markdown_escaped(line));
  if (part.is_tree) out += "```\n";
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
  std::string out = fmt::format("# Why RSS grew\n\n{}\n\n", markdown_escaped(recording_line(view)));
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  std::size_t shown = 0;
  for (const Verdict& verdict : verdicts) {
    if (is_passed_over(sections, verdict) || shown++ >= kMostVerdicts) continue;
    const std::string who = verdict.pid ? fmt::format("pid {}: ", *verdict.pid) : std::string();
    out += fmt::format("- **{}** {}{}  \n  {}  \n  {}\n", slug(verdict.severity), who,
                       markdown_escaped(printable(verdict.headline)), markdown_escaped(printable(verdict.why)),
                       markdown_escaped(printable(verdict.advice)));
  }
  if (shown > kMostVerdicts)
    out += fmt::format("- {} {} left out here\n", counted(shown - kMostVerdicts, "more verdict"),
                       shown == kMostVerdicts + 1 ? "is" : "are");
  for (const ProcessSection& one : sections)
    if (!one.alike.empty()) out += fmt::format("- pid {}: {}\n", one.process->account->pid, alike_text(view, one));
  for (const EvidencePart& part : evidence_parts(view, sections, style)) out += part_text(part);
  if (const std::string cost = cost_line(view); !cost.empty()) out += fmt::format("\n{}\n", markdown_escaped(cost));
  return bounded(std::move(out));
}

}  // namespace whyrss
