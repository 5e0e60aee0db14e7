// The paragraph that a comparison of allocators ends in.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/compare/compare.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Of the figure: smaller differences decide nothing, whatever the spread.
constexpr double kWorthSaying = 0.01;
constexpr std::int64_t kWorthTrimming = 1024 * 1024;
// From here on there is little left for an allocator to do.
constexpr double kMostlyLive = 0.9;

struct Entry {
  const Contestant* who;
  ContestantFigures figures;
};

using Which = Spread ContestantFigures::*;

std::string size_of(const Spread& spread) { return size_text(std::llround(spread.median)); }

std::string percent_text(double part) {
  const double percent = 100 * std::abs(part);
  return percent < 9.95 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

double relative(const Spread& from, const Spread& to) {
  return from.median > 0 ? (to.median - from.median) / from.median : 0;
}

bool several_runs(const Spread& spread) { return spread.values.size() >= 2; }

// With one run each there is no spread to compare with; the paragraph says so.
bool differs(const Spread& a, const Spread& b) {
  return std::abs(relative(a, b)) >= kWorthSaying && (!several_runs(a) || !several_runs(b) || is_distinct(a, b));
}

const Entry& least(const std::vector<Entry>& entries, Which which) {
  return *std::min_element(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return (a.figures.*which).median < (b.figures.*which).median;
  });
}

// Null: no other is below the first by more than the runs differ.
const Entry* winner(const std::vector<Entry>& entries, Which which) {
  const Entry& best = least(entries, which);
  const Spread& base = entries.front().figures.*which;
  return &best != &entries.front() && differs(base, best.figures.*which) ? &best : nullptr;
}

std::string range_text(const Spread& spread) {
  const std::string least = size_text(std::llround(spread.least)), most = size_text(std::llround(spread.most));
  return least == most ? least : fmt::format("{}, runs from {} to {}", size_of(spread), least, most);
}

// The first is the lowest of all: who comes next, and how far above.
std::string base_sentence(const std::vector<Entry>& entries, Which which, const char* what) {
  const Entry& base = entries.front();
  const Entry& next = *std::min_element(entries.begin() + 1, entries.end(), [&](const Entry& a, const Entry& b) {
    return (a.figures.*which).median < (b.figures.*which).median;
  });
  const Spread &from = base.figures.*which, &to = next.figures.*which;
  if (from.median >= to.median || !differs(from, to))
    return fmt::format("None is below {} in {} ({}) by more than the runs differ.", base.who->label, what,
                       range_text(from));
  return fmt::format("{} has the lowest {}: {}; next is {} with {} more ({}).", base.who->label, what, size_of(from),
                     next.who->label, percent_text(relative(from, to)), size_of(to));
}

std::string memory_sentence(const std::vector<Entry>& entries, Which which, const Entry* best, const char* what) {
  if (best == nullptr) return base_sentence(entries, which, what);
  const Spread &from = entries.front().figures.*which, &to = best->figures.*which;
  return fmt::format("{} has the lowest {}: {}, {} less than {} ({}).", best->who->label, what, size_of(to),
                     percent_text(relative(from, to)), entries.front().who->label, size_of(from));
}

std::string change_text(const Spread& from, const Spread& to) {
  if (!differs(from, to)) return "within the spread";
  return fmt::format("{}{}", relative(from, to) < 0 ? "-" : "+", percent_text(relative(from, to)));
}

std::string time_sentence(const Entry& base, const Entry& best) {
  return fmt::format("Its CPU time against {}: {}; wall time: {}.", base.who->label,
                     change_text(base.figures.cpu_s, best.figures.cpu_s),
                     change_text(base.figures.wall_s, best.figures.wall_s));
}

const Entry* without_settings(const std::vector<Entry>& entries, const Entry& tuned) {
  for (const Entry& entry : entries)
    if (entry.who->settings.empty() && entry.who->family == tuned.who->family &&
        entry.who->library == tuned.who->library)
      return &entry;
  return nullptr;
}

// The setting that gave most back at the end.
std::string setting_sentence(const std::vector<Entry>& entries) {
  const Entry *best = nullptr, *best_plain = nullptr;
  bool tried = false;
  double most = 0;
  for (const Entry& entry : entries) {
    const Entry* plain = entry.who->settings.empty() ? nullptr : without_settings(entries, entry);
    if (plain == nullptr) continue;
    tried = true;
    const double saved = plain->figures.final_rss.median - entry.figures.final_rss.median;
    if (saved <= most || !differs(plain->figures.final_rss, entry.figures.final_rss)) continue;
    most = saved;
    best = &entry;
    best_plain = plain;
  }
  if (!tried) return "";
  if (best == nullptr) return "No setting that was tried lowers the RSS at the end by more than the runs differ.";
  return fmt::format("Of the settings, {} gives most back: {} ends with {} instead of {} (peak RSS: {}; CPU time: {}).",
                     fmt::join(best->who->settings, " "), best_plain->who->label, size_of(best->figures.final_rss),
                     size_of(best_plain->figures.final_rss),
                     change_text(best_plain->figures.peak_rss, best->figures.peak_rss),
                     change_text(best_plain->figures.cpu_s, best->figures.cpu_s));
}

std::string trim_sentence(const Comparison& comparison) {
  for (const Contestant& who : comparison.contestants) {
    if (!who.trim) continue;
    const TrimEffect& trim = *who.trim;
    const std::int64_t given = trim.rss_before - trim.rss_after;
    if (given < kWorthTrimming) return fmt::format("malloc_trim(0) at the end gave nothing back ({}).", who.label);
    return fmt::format("malloc_trim(0) at the end gave back {} of the {} that {} then had resident.", size_text(given),
                       size_text(trim.rss_before), who.label);
  }
  return "";
}

double heap_at_peak(const ContestantFigures& figures) {
  return figures.live_at_peak.median + figures.slack_at_peak.median + figures.retained_at_peak.median +
         figures.unsplit_at_peak.median;
}

// A program that has an allocator linked in asks malloc for little.
std::string own_allocator_sentence(const Entry& base) {
  const ContestantFigures& figures = base.figures;
  if (!figures.has_parts || 2 * figures.unsplit_at_peak.median <= heap_at_peak(figures)) return "";
  return fmt::format(
      "{} of the {} of heap at the peak are of an allocator inside the program or a library of it, which another "
      "malloc does not replace.",
      size_of(figures.unsplit_at_peak), size_text(std::llround(heap_at_peak(figures))));
}

std::string live_sentence(const Entry& base) {
  const ContestantFigures& figures = base.figures;
  if (!figures.has_parts)
    return "What of the heap was live and what the allocator only kept is not known of these recordings.";
  const double heap = heap_at_peak(figures);
  if (heap <= 0 || figures.live_at_peak.median < kMostlyLive * heap) return "";
  return fmt::format("{} of {}'s heap at the peak was live: that much no allocator can save.",
                     percent_text(figures.live_at_peak.median / heap), base.who->label);
}

std::string use_sentence(const Contestant& who) {
  std::vector<std::string> words = who.settings;
  if (!who.library.empty()) words.insert(words.begin(), "LD_PRELOAD=" + who.library);
  return words.empty() ? "" : fmt::format("To use it: {} before the command.", fmt::join(words, " "));
}

// Those that ran as the first one did: what failed half way needs less memory for the wrong reason.
std::vector<Entry> comparable(const Comparison& comparison) {
  std::vector<Entry> entries;
  for (const Contestant& who : comparison.contestants) {
    if (who.bare.empty() || who.recorded.empty()) continue;
    Entry entry{&who, figures_of(who)};
    if (entries.empty() || entry.figures.ends == entries.front().figures.ends) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

std::string conclusion(const Comparison& comparison) {
  const std::vector<Entry> entries = comparable(comparison);
  if (entries.empty()) return "No run could be measured: there is nothing to conclude.";
  const Entry& base = entries.front();
  std::vector<std::string> sentences;
  if (!several_runs(base.figures.peak_rss))
    sentences.emplace_back("One run each: how much runs differ by themselves is not known.");
  sentences.push_back(own_allocator_sentence(base));
  const Entry* peak = nullptr;
  const Entry* end = nullptr;
  if (entries.size() > 1) {
    peak = winner(entries, &ContestantFigures::peak_rss);
    end = winner(entries, &ContestantFigures::final_rss);
    sentences.push_back(memory_sentence(entries, &ContestantFigures::peak_rss, peak, "peak RSS"));
    sentences.push_back(memory_sentence(entries, &ContestantFigures::final_rss, end, "RSS at the end"));
  } else {
    sentences.push_back(base.who->label + " alone was measured.");
  }
  if (const Entry* best = peak != nullptr ? peak : end; best != nullptr) {
    sentences.push_back(best == peak && end != nullptr && end != peak
                            ? fmt::format("For {}: {}", best->who->label, time_sentence(base, *best))
                            : time_sentence(base, *best));
    sentences.push_back(use_sentence(*best->who));
  }
  sentences.push_back(setting_sentence(entries));
  sentences.push_back(trim_sentence(comparison));
  sentences.push_back(live_sentence(base));
  if (entries.size() < comparison.contestants.size())
    sentences.emplace_back("Allocators under which the command ended otherwise are left out.");
  std::erase(sentences, "");
  return fmt::format("{}", fmt::join(sentences, " "));
}

}  // namespace whyrss
