#include "report/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/accounting_text.h"
#include "report/allocator_figures.h"
#include "report/call_chains.h"
#include "report/cow_text.h"
#include "report/format.h"
#include "report/process_text.h"
#include "report/sections.h"
#include "report/verdict_thresholds.h"

namespace whyrss {
namespace {

constexpr std::size_t kSeverityColumns = 7;  // "warning", "problem"
constexpr std::size_t kWrapColumns = 100;
constexpr const char* kReset = "\033[0m";

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

std::string headline_line(const Verdict& verdict, const TextStyle& style) {
  const std::string word(slug(verdict.severity));
  const std::string pad(kSeverityColumns - word.size(), ' ');
  const std::string shown = style.colour ? colour_of(verdict.severity) + word + kReset : word;
  return "  " + shown + pad + "  " + printable(verdict.headline) + "\n";
}

// What has ended had a peak before: both, where they differ.
std::string peak_and_end(const ProcessView& process) {
  if (!process.account->ended_s || !process.at_last || !process.at_peak) return "";
  if (process.rss.peak - process.rss.last < kNamedGrowthBytes) return "";
  return fmt::format("; {} at its peak at {}, {} at its end at {}", size_text(process.rss.peak),
                     seconds_text(process.at_peak->time_s), size_text(process.rss.last),
                     seconds_text(process.at_last->time_s));
}

std::string process_line(const ProcessView& process, const TextStyle& style) {
  const ProcessAccount& account = *process.account;
  const Interval& interval = process.interval;
  const double from_s = std::max(interval.from_s, account.born_s);
  const double to_s = std::max(from_s, std::min(interval.to_s, account.ended_s.value_or(interval.to_s)));
  const std::string name = fmt::format("{} (pid {})", command_text(account.command), account.pid);
  const std::string growth = process.walked ? growth_text(process.rss.growth()) : "not known";
  return fmt::format("{}{}{}   RSS {} in {}{}\n", style.colour ? "\033[1m" : "", name, style.colour ? kReset : "",
                     growth, seconds_text(to_s - from_s), peak_and_end(process));
}

std::string wrapped(const std::string& text, const std::string& indent) {
  std::string out, line = indent;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (text_width(line) + 1 + text_width(word) > kWrapColumns && line.size() > indent.size()) {
      out += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + word;
    at = end + 1;
  }
  return out + line + "\n";
}

std::string answer(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style, bool with_advice) {
  std::string out;
  const std::string indent(kSeverityColumns + 4, ' ');
  const auto add = [&](const Verdict& verdict) {
    out += headline_line(verdict, style);
    if (!with_advice) return;
    out += wrapped(printable(verdict.why), indent);
    if (!verdict.advice.empty()) out += wrapped(printable(verdict.advice), indent);
  };
  const std::vector<ToldProcess> told = told_processes(view, verdicts);
  for (const ToldProcess& one : told) {
    out += process_line(*one.process, style);
    for (const Verdict& verdict : verdicts)
      if (verdict.pid == one.process->account->pid) add(verdict);
    if (!one.alike.empty()) out += wrapped(alike_text(one), indent);
  }
  for (const Verdict& verdict : verdicts) {
    const bool shown =
        std::ranges::any_of(told, [&](const ToldProcess& one) { return verdict.pid == one.process->account->pid; });
    if (!shown && !is_alike(told, verdict.pid)) add(verdict);
  }
  const std::string rest = rest_text(view, told, verdicts);
  if (!rest.empty()) out += rest + "\n";
  return out;
}

std::string incomplete_line(const RecordingInfo& recording) {
  return recording.complete ? "" : "incomplete: " + printable(recording.incomplete_why) + "\n";
}

std::string section(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = "\n" + title + "\n";
  for (const std::string& line : lines) out += "  " + line + "\n";
  return out;
}

}  // namespace

std::string render_short(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style) {
  std::string out = answer(view, verdicts, style, false);
  const RecordingInfo& recording = view.recording->info;
  out += incomplete_line(recording);
  if (recording.lost_events > 0)
    out += fmt::format("{} events were lost: lines may be missing\n", recording.lost_events);
  return out;
}

std::string render_text(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style) {
  std::string out = answer(view, verdicts, style, true) + incomplete_line(view.recording->info);
  const Interval life = whole_life(*view.recording);
  const std::string interval =
      view.interval.from_s > life.from_s || view.interval.to_s < life.to_s
          ? fmt::format(", from {:.3f} s to {:.3f} s", view.interval.from_s, view.interval.to_s)
          : "";
  out += "\nMemory by process and cause, MiB" + interval + "\n" + cause_table(view).text();
  if (style.by_touch)
    out += "\nLines that made the most memory resident, MiB\n" + touch_table(view, style.top).text();
  else
    out += "\nLines with the most growth, MiB\n" + line_table(view, style.top).text();
  if (style.stacks) out += section("Callers of the lines with the most growth", call_chain_lines(view, style.top));
  out += "\nProcesses, MiB\n" + process_table(view).text();
  out += section("Memory shared by forks", cow_lines(view, style.top));
  out += section("All processes together", family_lines(view));
  if (const std::string title = accounting_title(view); !title.empty())
    out +=
        "\n" + title + "\n" + accounting_table(view).text() + "\n" + accounting_process_table(view, style.top).text();
  out += section("What the allocators say themselves", allocator_lines(view));
  out += section("What was lost", loss_lines(view));
  out += section("What this recording cannot tell", limit_lines(view));
  out += '\n';
  out += recording_line(view);
  out += '\n';
  const std::string cost = cost_line(view);
  return cost.empty() ? out : out + cost + "\n";
}

}  // namespace whyrss
