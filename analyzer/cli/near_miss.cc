#include "cli/near_miss.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>

#include "cli/process_snapshot.h"
#include "cli/shell_words.h"
#include "cli/verbs.h"
#include "job/part_file.h"
#include "recording/recording_folder.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kMostEdits = 2;

// Optimal string alignment.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) edits[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) edits[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  return edits[a.size()][b.size()];
}

bool is_recording(const std::string& path) {
  if (may_be_part(path)) return PartFile::open(path).ok();
  const auto folder = open_recording(path);
  return folder && read_manifest(*folder);
}

// What other tools call it: memray, heaptrack, perf, py-spy, Scalene.
struct Synonym {
  std::string_view word, verb;
};
constexpr Synonym kSynonyms[] = {
    {"run", "record"},   {"profile", "record"}, {"trace", "record"},   {"flamegraph", "html"}, {"view", "html"},
    {"table", "report"}, {"tree", "report"},    {"stats", "report"},   {"stat", "report"},     {"summary", "report"},
    {"show", "report"},  {"print", "report"},   {"analyze", "report"}, {"live", "top"},
};

std::string verb_of(const std::string& word) {
  const auto* synonym = std::ranges::find(kSynonyms, word, &Synonym::word);
  return synonym == std::end(kSynonyms) ? nearest_word(word, kVerbs) : std::string(synonym->verb);
}

std::string verb_meant(const std::vector<std::string>& command) {
  const std::string verb = verb_of(command.front());
  if (verb.empty()) return "";
  std::vector<std::string> words = command;
  words.front() = verb;
  // `memray run` takes a script.
  if (verb == "record" && words.size() > 1 && words[1].ends_with(".py")) words.insert(words.begin() + 1, "python3");
  return fmt::format("{} is no verb, and no program that can be run: did you mean {}? (whyrss {})",
                     shell_word(command.front()), verb, shell_command(words));
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongestWord = 64;
  std::string_view nearest;
  std::size_t fewest = std::min(kMostEdits, word.size() < 4 ? 1 : kMostEdits) + 1;
  if (word.size() < 3 || word.size() > kLongestWord) return "";
  for (const std::string_view candidate : candidates)
    if (const std::size_t edits = edits_between(word, candidate); edits < fewest) {
      nearest = candidate;
      fewest = edits;
    }
  return std::string(nearest);
}

std::string cannot_attach(const std::string& target) {
  return fmt::format(
      "a running process cannot be attached to: record it from its start (`whyrss record -- CMD`), watch what it has "
      "(`whyrss top {0}`), or see what the kernel takes back from it (`whyrss prove {0}`)",
      target);
}

std::string process_hint(const std::string& text) {
  const auto pid = parse_number<pid_t>(text);
  if (!pid || *pid <= 0 || activity_of(*pid).stat.has_ended()) return "";
  return fmt::format("{} is a process: {}", *pid, cannot_attach(text));
}

std::string command_hint(const std::vector<std::string>& command) {
  const std::string& first = command.front();
  if (first == "attach") return cannot_attach(command.size() > 1 ? shell_word(command[1]) : "PID");
  if (std::string hint = process_hint(first); !hint.empty()) return hint;
  if (parse_number<pid_t>(first))
    return fmt::format(
        "{} is no process that runs now, and no program: `whyrss record -- CMD` records one from its start", first);
  if (is_recording(first)) return fmt::format("{0} is a recording: whyrss report {0}", shell_word(first));
  return verb_meant(command);
}

}  // namespace whyrss
