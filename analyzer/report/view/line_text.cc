#include "report/view/line_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/view/blame.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {

bool dominates(std::int64_t part, std::int64_t whole) {
  constexpr double kDominantShare = 0.8;
  return static_cast<double>(part) >= kDominantShare * static_cast<double>(whole);
}

bool is_nearly_all(std::int64_t part, std::int64_t whole) {
  constexpr double kNearlyAllShare = 0.95;  // the rest is next to nothing: what a start takes, beside data
  return static_cast<double>(part) >= kNearlyAllShare * static_cast<double>(whole);
}

const char* most_or_largest(std::int64_t part, std::int64_t whole) {
  return part * 2 > whole ? "most of it" : "the largest";
}

std::vector<const SiteView*> pointers(const std::vector<SiteView>& sites) {
  std::vector<const SiteView*> result;
  for (const SiteView& site : sites) result.push_back(&site);
  return result;
}

const LineGrowth* top_named(const std::vector<LineGrowth>& lines) {
  for (const LineGrowth& line : lines)
    if (!line.line.empty() && is_significant(line.bytes, line.variance)) return &line;
  return nullptr;
}

bool mostly_unseen(const std::vector<LineGrowth>& lines, std::int64_t whole) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const LineGrowth& line) { return line.line.empty() && line.bytes * 2 > whole; });
}

const ReceivedText* mostly_received(const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole) {
  static constexpr ReceivedText kItems{
      " Another process sent it pickled (an argument of a process or a task, an item of a queue), and this one "
      "unpickled it: each receiver has a copy of its own.",
      "Send an index instead of the data, or share the data: load it before the workers are forked (start method fork, "
      "not spawn), or keep it in multiprocessing.shared_memory, torch tensors or a mapped file, which are sent as a "
      "handle."};
  static constexpr ReceivedText kResults{
      " Workers sent it pickled, as the results of their tasks, and this process unpickled and keeps them.",
      "Take each result as it comes and drop it (imap_unordered, as_completed), hand out fewer tasks at a time where "
      "results wait for it, have the tasks return less, or have "
      "them write large results to files."};
  std::int64_t items = 0, results = 0;
  for (const SiteView& site : sites) {
    const Received received = received_as(stacks, site.stack);
    if (received == Received::no) continue;
    (received == Received::item ? items : results) += site.growth;
  }
  if ((items + results) * 2 <= whole) return nullptr;
  return results > items ? &kResults : &kItems;
}

const char* touch_verb(Cause cause) {
  switch (cause) {
    case Cause::file_cache:
      return "read";
    case Cause::file_cow:
    case Cause::fork_cow:
      return "written";
    case Cause::shared_memory:
      return "filled or read";
    case Cause::heap_live:
    case Cause::heap_slack:
    case Cause::heap_retained:
    case Cause::heap_metadata:
    case Cause::heap_unsplit:
      return "touched first";
    case Cause::lazy_free:
      return "given up";
    default:
      return "touched";
  }
}

const char* touch_verb(const RecordingAccount& recording, Cause cause, const std::string& mapping) {
  const auto is_writable = [&](const FileSizes& sizes) {
    const auto found = sizes.files.find(mapping);
    return found != sizes.files.end() && found->second.is_writable;
  };
  const bool may_be_written =
      cause == Cause::file_cache && std::ranges::any_of(recording.processes, [&](const auto& process) {
        return std::ranges::any_of(process.file_sizes, is_writable);
      });
  return may_be_written ? "touched" : touch_verb(cause);
}

std::string touched_where(const LineGrowth& line, const char* verb) {
  if (line.other_line.empty()) return "";
  const char* most = dominates(line.other_bytes, line.bytes) ? "" : "mostly ";
  if (line.other_meanwhile) return fmt::format(", {}{} while {} ran", most, verb, line.other_line);
  return fmt::format(", {}{} at {}", most, verb, line.other_line);
}

const char* done_by_text(const LineGrowth& line) {
  if (2 * line.process_bytes > line.bytes) return ", by a process that it started";
  if (2 * line.meanwhile_bytes > line.bytes) return kDoneMeanwhile;
  return 2 * line.thread_bytes > line.bytes ? ", by a thread that it started" : "";
}

const char* asked_text(const LineGrowth& line) {
  if (2 * line.process_bytes > line.bytes) return "; the line started the process that asked for it";
  if (2 * line.meanwhile_bytes > line.bytes) return "; other threads of the process asked for it while that line ran";
  if (2 * line.thread_bytes > line.bytes)
    return "; a thread that the line started asked for it, perhaps for the work of another line";
  return "; the line is where it was asked for";
}

std::string callers_text(const LineGrowth& line) {
  constexpr std::size_t kNamed = 3;
  constexpr std::int64_t kLeastPart = 10;  // of the line's bytes
  std::vector<std::string> named;
  for (const LineGrowth::Caller& caller : line.callers)
    if (named.size() < kNamed && caller.bytes >= kNamedGrowthBytes && caller.bytes * kLeastPart >= line.bytes)
      named.push_back(fmt::format("at {} for {}", caller.line, size_text(caller.bytes)));
  return named.size() < 2 ? "" : fmt::format(" Its function was called {}.", fmt::join(named, ", "));
}

std::string placed_text(const LineGrowth& line) {
  if (!line.runtime.empty()) return fmt::format("in {}", line.runtime);
  if (line.number <= 0) return "in " + line.line + done_by_text(line);
  if (2 * line.meanwhile_bytes > line.bytes) return fmt::format("while {} ran", line.line);
  if (2 * line.process_bytes > line.bytes) return fmt::format("by a process that {} started", line.line);
  if (2 * line.thread_bytes > line.bytes) return fmt::format("by a thread that {} started", line.line);
  return "at " + line.line;
}

namespace {

// ", 80 MiB of it by a thread that it started", where placed_text() is true of the rest alone. `of`: what the line's
// bytes are called, "it" or "that".
std::string otherwise_text(const LineGrowth& line, const char* of) {
  constexpr std::int64_t kGoodPart = 5;
  struct Doer {
    std::int64_t bytes;
    const char* text;
  };
  const std::int64_t own = line.bytes - line.thread_bytes - line.meanwhile_bytes - line.process_bytes;
  std::string text;
  for (const auto& [bytes, by] :
       {Doer{own, "by the line itself"}, Doer{line.thread_bytes, "by a thread that it started"},
        Doer{line.meanwhile_bytes, "by other threads while it ran"},
        Doer{line.process_bytes, "by a process that it started"}})
    if (2 * bytes <= line.bytes && kGoodPart * bytes >= line.bytes && bytes >= kNamedGrowthBytes)
      text += fmt::format(", {} of {} {}", size_text(bytes), of, by);
  return text;
}

// ", 41 MiB at a.py:4 in f" for up to two more lines that have a good part of it too. Where half of it or more has no
// line yet, ", 60 MiB at 9 other lines".
std::string others_text(const std::vector<LineGrowth>& lines, const LineGrowth& top, std::int64_t whole) {
  constexpr std::int64_t kGoodPart = 5;
  constexpr std::size_t kMostOthers = 2;
  std::string text;
  std::size_t count = 0, rest_count = 0;
  std::int64_t named = top.bytes, rest = 0;
  for (const LineGrowth& other : lines) {
    if (&other == &top || other.line.empty() || !is_significant(other.bytes, other.variance)) continue;
    if (kGoodPart * other.bytes < whole || count == kMostOthers) {
      rest += other.bytes;
      ++rest_count;
      continue;
    }
    text +=
        fmt::format(", {}{} {}", size_text(other.bytes), error_text(other.bytes, other.variance), placed_text(other));
    named += other.bytes;
    ++count;
  }
  if (rest_count > 1 && 2 * named < whole && kGoodPart * rest > whole)
    text += fmt::format(", {} at {} other lines", size_text(rest), rest_count);
  return text;
}

// With one entry for all lines of a runtime whose lines say nothing.
std::vector<LineGrowth> by_runtime(const std::vector<LineGrowth>& lines) {
  std::vector<LineGrowth> merged;
  for (const LineGrowth& line : lines) {
    const auto same = std::ranges::find_if(
        merged, [&](const LineGrowth& one) { return !line.runtime.empty() && one.runtime == line.runtime; });
    if (same == merged.end()) {
      merged.push_back(line);
      continue;
    }
    same->bytes += line.bytes;
    same->variance += line.variance;
  }
  std::ranges::stable_sort(merged, std::ranges::greater{}, &LineGrowth::bytes);
  return merged;
}

bool names_line(const std::vector<LineGrowth>& lines, std::int64_t whole) {
  constexpr std::int64_t kLeastPart = 10;
  const LineGrowth* top = top_named(lines);
  return top != nullptr && !mostly_unseen(lines, whole) && kLeastPart * top->bytes >= whole;
}

}  // namespace

std::optional<LineGrowth> named_line(const std::vector<LineGrowth>& all, std::int64_t whole) {
  const std::vector<LineGrowth> lines = by_runtime(all);
  return names_line(lines, whole) ? std::optional(*top_named(lines)) : std::nullopt;
}

bool names_native_line(const std::vector<LineGrowth>& lines) {
  const LineGrowth* top = top_named(lines);
  return top != nullptr && dominates(top->native_bytes, top->bytes);
}

std::string kept_where(const std::vector<LineGrowth>& all, std::int64_t whole, const char* verb,
                       const char* other_verb) {
  const std::vector<LineGrowth> lines = by_runtime(all);
  const LineGrowth* top = top_named(lines);
  if (top == nullptr) return "";
  if (mostly_unseen(lines, whole)) return " (most of it has no recorded line)";
  const std::string placed =
      fmt::format("{} {}{}", verb, placed_text(*top), names_native_line(lines) ? ", by " + top->native_line : "");
  const std::string touched =
      other_verb != nullptr && dominates(top->bytes, whole) ? touched_where(*top, other_verb) : "";
  const std::string error = error_text(top->bytes, top->variance);
  const std::string size = size_text(top->bytes) + error;
  const bool with_size = !is_nearly_all(top->bytes, whole) || !error.empty();
  const std::string otherwise = otherwise_text(*top, with_size ? "that" : "it");
  if (is_nearly_all(top->bytes, whole))
    return fmt::format(" ({}{}{}{})", placed, error.empty() ? "" : ": " + size, otherwise, touched);
  if (!names_line(lines, whole)) return fmt::format(" (no line has more than {} of it)", size_text(top->bytes));
  if (2 * top->bytes <= whole)
    return fmt::format(" ({}{} of it {}{}{})", size_text(top->bytes), error, placed, otherwise,
                       others_text(lines, *top, whole));
  return fmt::format(" (most {}: {}{}{}{})", placed, size, otherwise, touched, others_text(lines, *top, whole));
}

namespace {

nlohmann::ordered_json caller_evidence(const LineGrowth& line) {
  auto list = nlohmann::ordered_json::array();
  for (const LineGrowth::Caller& caller : line.callers)
    if (list.size() < kEvidenceEntries) list.push_back({{"line", caller.line}, {"growth_bytes", caller.bytes}});
  return list;
}

}  // namespace

nlohmann::ordered_json line_evidence(const std::vector<LineGrowth>& lines) {
  auto list = nlohmann::ordered_json::array();
  for (const LineGrowth& line : lines) {
    if (list.size() == kEvidenceEntries) break;
    list.push_back({{"line", line.line},
                    {"file", line.file},
                    {"number", line.number},
                    {"native_line", line.native_line},
                    {"callers", caller_evidence(line)},
                    {"growth_bytes", line.bytes},
                    {"meanwhile_bytes", line.meanwhile_bytes},
                    {"thread_bytes", line.thread_bytes},
                    {"process_bytes", line.process_bytes},
                    {"standard_error", static_cast<std::int64_t>(std::llround(std::sqrt(line.variance)))}});
  }
  return list;
}

}  // namespace whyrss
