#include "report/render/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "model/recording_state.h"
#include "report/render/evidence.h"
#include "report/render/process_text.h"
#include "report/render/sections.h"
#include "report/render/timeline.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"
#include "support/helper_command.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kSeverityColumns = 7;  // "warning", "problem"
constexpr std::size_t kLeftOutLines = 3;     // of left_out_text(), broken
constexpr std::size_t kProseColumns = 100;   // sentences are not read well in longer lines
constexpr const char *kBold = "\033[1m", *kReset = "\033[0m";

const char* colour_of(Severity severity) {
  switch (severity) {
    case Severity::ok:
      return "\033[32m";
    case Severity::info:
      return "\033[36m";
    case Severity::warning:
      return "\033[33m";
    case Severity::problem:
      return "\033[31m";
  }
  return "";
}

std::size_t line_count(const std::string& text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

std::size_t prose_columns(const TextStyle& style) { return std::min(style.columns, kProseColumns); }

std::string headline_line(const Verdict& verdict, const TextStyle& style) {
  const std::string word(slug(verdict.severity));
  const std::string indent(kSeverityColumns + 4, ' ');
  std::string out = wrapped(printable(verdict.headline), indent, indent, style.columns);
  const std::string shown = style.colour ? colour_of(verdict.severity) + word + kReset : word;
  return out.replace(2, word.size(), shown);
}

std::string process_line(const RecordingAccount& recording, const ProcessView& process, const TextStyle& style) {
  const std::size_t name_bytes = name_with_pid(*process.account).size();
  std::string out = wrapped(head_line(recording, process), "", "  ", style.columns);
  if (style.colour) out.insert(std::min(name_bytes, out.find('\n')), kReset).insert(0, kBold);
  return out;
}

// Which blocks there is room for.
struct AnswerBound {
  std::size_t sections = SIZE_MAX;
  std::size_t lines = SIZE_MAX;  // of the answer; the first block is shown however long it is
};

std::string answer(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style,
                   const AnswerBound& bound, bool with_advice) {
  const std::string indent(kSeverityColumns + 4, ' ');
  const auto block_of = [&](const Verdict& verdict) {
    std::string block = headline_line(verdict, style);
    if (!with_advice) return block;
    block += wrapped(printable(verdict.why), indent, indent, prose_columns(style));
    if (!verdict.advice.empty()) block += wrapped(printable(verdict.advice), indent, indent, prose_columns(style));
    return block;
  };
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  std::string after;
  for (const Verdict& verdict : verdicts)
    if (section_of(sections, verdict.pid) == nullptr && !is_passed_over(sections, verdict)) after += block_of(verdict);
  const std::string rest = rest_text(view, sections, verdicts);
  if (!rest.empty()) after += wrapped(rest, "", "  ", prose_columns(style));
  std::string out;
  std::size_t lines = line_count(after), shown = 0;
  for (const ProcessSection& one : sections) {
    std::string block = process_line(*view.recording, *one.process, style);
    for (const Verdict& verdict : verdicts)
      if (verdict.pid == one.process->account->pid) block += block_of(verdict);
    if (!one.alike.empty()) block += wrapped(alike_text(view, one), indent, indent, prose_columns(style));
    lines += line_count(block);
    const bool is_last = shown + 1 == sections.size();
    if (shown > 0 && (shown >= bound.sections || lines + (is_last ? 0 : kLeftOutLines) > bound.lines)) break;
    out += block;
    ++shown;
  }
  if (shown < sections.size()) out += wrapped(left_out_text(sections, shown), "", "  ", prose_columns(style));
  return out + after;
}

// ": python serve.py (pid 12), sh (pid 13) and 4 more", the processes of the job that run yet.
std::string running_text(const RecordingAccount& recording) {
  constexpr std::size_t kMostRunning = 3;
  std::string text;
  std::size_t count = 0;
  for (const ProcessAccount& process : recording.processes) {
    if (process.ended_s || is_helper_command(process.command) || ++count > kMostRunning) continue;
    text += fmt::format("{}{} (pid {})", count == 1 ? ": " : ", ", command_text(process.command), process.pid);
  }
  return text + (count > kMostRunning ? fmt::format(" and {} more", count - kMostRunning) : "");
}

std::string incomplete_line(const View& view, const TextStyle& style) {
  const RecordingInfo& recording = view.recording->info;
  if (recording.complete) return "";
  std::string why = printable(recording.incomplete_why);
  if (recording.incomplete_why == kStillRunning) {
    const std::string running = running_text(*view.recording);
    const bool tracked = std::ranges::any_of(view.recording->processes, [](const ProcessAccount& process) {
      return !process.ended_s && is_helper_command(process.command);
    });
    if (view.in_notebook || view.is_live || (running.empty() && tracked)) return "";
    why += running;
  }
  return wrapped("incomplete: " + why, "", "  ", prose_columns(style));
}

class EvidenceText {
 public:
  explicit EvidenceText(const TextStyle& style) : style_(style) {}

  void add(const EvidencePart& part) {
    blank();
    line(part.title);
    for (const Table& table : part.tables) {
      if (&table != &part.tables.front()) blank();
      text_ += table.text(style_.columns);
    }
    // What goes on in the next line stands deeper than where it began.
    for (const std::string& line : part.lines)
      text_ += wrapped(line, "  ", std::string(4 + line.find_first_not_of(' '), ' '), prose_columns(style_));
  }
  void line(const std::string& line) { text_ += wrapped(line, "", "  ", prose_columns(style_)); }
  void blank() { text_ += "\n"; }
  std::string take() { return std::move(text_); }

 private:
  const TextStyle& style_;
  std::string text_;
};

// The first lines, and how many more there are.
std::string cut(const std::string& text, std::size_t most) {
  const std::size_t lines = line_count(text);
  if (lines <= most || most == 0) return most == 0 ? "" : text;
  std::size_t end = 0;
  for (std::size_t i = 0; i + 1 < most; ++i) end = text.find('\n', end) + 1;
  return text.substr(0, end) + fmt::format("  … {}\n", counted(lines - most + 1, "more line"));
}

// Each part gets an equal share of the lines, and what the ones before it need less.
std::vector<std::string> fitted(const std::vector<std::string>& parts, std::size_t rows) {
  constexpr std::size_t kLeast = 5;  // of a part: blank line, title, heads, a row
  std::vector<std::size_t> needs, gets;
  for (const std::string& part : parts) needs.push_back(line_count(part));
  std::size_t left = rows;
  for (const std::size_t need : needs) {  // those that fit no more are left out, the last ones first
    gets.push_back(std::min({need, left, std::max(kLeast, rows / parts.size())}));
    if (gets.back() < std::min(need, kLeast)) gets.back() = 0;
    left -= gets.back();
  }
  for (std::size_t i = 0; i < needs.size(); ++i) {
    if (gets[i] == 0) continue;
    const std::size_t more = std::min(left, needs[i] - gets[i]);
    gets[i] += more;
    left -= more;
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < parts.size(); ++i) out.push_back(cut(parts[i], gets[i]));
  return out;
}

}  // namespace

std::string render_short(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style) {
  const RecordingInfo& recording = view.recording->info;
  std::string out = answer(view, verdicts, style, {.lines = style.lines}, false) + incomplete_line(view, style);
  if (recording.lost_events > 0)
    out += fmt::format("{} {} lost: lines may be missing\n", counted(recording.lost_events, "event"),
                       recording.lost_events == 1 ? "was" : "were");
  return out;
}

std::string render_live(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style,
                        std::size_t rows) {
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  const auto part = [&](std::string title, Table table) {
    EvidenceText evidence(style);
    evidence.add({.title = std::move(title), .tables = {std::move(table)}});
    return evidence.take();
  };
  std::vector<std::string> parts{render_short(view, verdicts, style),
                                 part(cause_title(view), cause_table(view, sections, style.top)),
                                 part("Lines with the most growth, MiB", line_table(view, style.top))};
  if (auto table = timeline_table(view, sections)) parts.push_back(part(timeline_title(view), std::move(*table)));
  return join(rows == 0 ? parts : fitted(parts, rows), "");
}

std::string render_text(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style) {
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  EvidenceText evidence(style);
  for (const EvidencePart& part : evidence_parts(view, sections, style)) evidence.add(part);
  evidence.blank();
  evidence.line(recording_line(view));
  if (const std::string cost = cost_line(view); !cost.empty()) evidence.line(cost);
  return answer(view, verdicts, style, {.sections = style.top}, true) + incomplete_line(view, style) + evidence.take();
}

}  // namespace whyrss
