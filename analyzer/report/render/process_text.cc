#include "report/render/process_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "model/recording_state.h"
#include "report/verdicts/growth_parts.h"
#include "report/view/blame.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"

namespace whyrss {
namespace {

constexpr std::size_t kCommandColumns = 60;
constexpr std::size_t kMostNamed = 8;

// The verdicts of each process, in their order.
std::map<int, std::vector<const Verdict*>> by_process(const std::vector<Verdict>& verdicts) {
  std::map<int, std::vector<const Verdict*>> found;
  for (const Verdict& verdict : verdicts)
    if (verdict.pid) found[*verdict.pid].push_back(&verdict);
  return found;
}

// Without sizes, shares, times, counts and what processes put into names of files: those of workers differ in numbers
// only. A line that has all is named without a size, and one that has nearly all with "most", a size and its error.
std::string without_figures(const std::string& headline) {
  static const std::regex kFigure(
      "(: )?[0-9][0-9.,]* (B|[KMGT]iB|%|m?s)( each)?( ± [0-9.]+ %)?|(the )?most |\\b[0-9]+(?= files)|/dev/shm/[^ ,)]*");
  return std::regex_replace(headline, kFigure, "");
}

std::string without_digits(std::string_view text) {
  std::string rest;
  std::ranges::copy_if(text, std::back_inserter(rest), [](char letter) { return letter < '0' || letter > '9'; });
  return rest;
}

// What command lines of processes alike have in common: the program, its script, module or code, and the names of its
// options. The other words are what each of them works on; those of workers differ in numbers only.
std::string common_words(const std::vector<std::string>& command) {
  std::string words;
  bool has_script = false, is_code = false;
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string_view word = command[i];
    const bool is_option = i > 0 && !is_code && word.starts_with('-');
    if (is_option) word = word.substr(0, word.find('='));
    if (i > 0 && !is_option && std::exchange(has_script, true) && !is_code) continue;
    is_code = is_option && (word == "-c" || word == "-m");
    words += without_digits(word) + '\0';
  }
  return words;
}

// "b.csv, ": what another process alike works on.
std::string own_words(const ProcessAccount& process, const ProcessAccount& first) {
  constexpr std::size_t kMostWords = 2, kWordColumns = 30;
  const auto is_known = [&](std::string_view word) {
    return std::ranges::any_of(first.command,
                               [&](const std::string& other) { return without_digits(other) == without_digits(word); });
  };
  std::string text;
  std::size_t count = 0;
  for (const std::string& word : process.command) {
    if (is_known(word) || ++count > kMostWords) continue;
    const std::string name = base_name(word);
    const bool names_it = !name.empty() && std::ranges::none_of(first.command, [&](const std::string& other) {
      return base_name(other) == name;
    });
    text += shortened(printable(names_it ? name : word), kWordColumns) + ", ";
  }
  return text;
}

// "; killed by SIGSEGV". That of SIGKILL of the main process is a verdict's. A forked worker is ended by SIGTERM when
// its pool closes.
std::string end_signal_text(const RecordingAccount& recording, const ProcessView& process) {
  const ProcessAccount& account = *process.account;
  const bool is_main = process.account == &recording.processes.front();
  const bool is_shown =
      is_main ? account.end_signal != "SIGKILL" : account.end_signal != "SIGTERM" || !account.born_by_fork;
  if (account.end_signal.empty() || !is_shown || process.interval.to_s < end_of_work(recording, account)) return "";
  return fmt::format("; killed by {}", printable(account.end_signal));
}

// What is said of a process. Which of them is flat for long enough to say so is chance.
struct Said {
  const ProcessView* process = nullptr;
  std::string command{};
  std::string end_signal{};              // as it is shown
  std::vector<std::string> sentences{};  // without kFlat
  std::vector<bool> flat{};              // of each
  std::size_t first = 0;                 // place of its first verdict among all
};

Said said_of(const RecordingAccount& recording, const ProcessView& process, const std::vector<const Verdict*>& verdicts,
             std::size_t first) {
  Said said{.process = &process,
            .command = common_words(process.account->command),
            .end_signal = end_signal_text(recording, process),
            .first = first};
  constexpr std::string_view kFlat = ", flat since ";
  for (const Verdict* verdict : verdicts) {
    std::string sentence =
        fmt::format("{} {} {}", slug(verdict->severity), verdict->id, without_figures(verdict->headline));
    const std::size_t at = sentence.find(kFlat);
    if (at != std::string::npos) sentence.erase(at, kFlat.size());
    said.sentences.push_back(std::move(sentence));
    said.flat.push_back(at != std::string::npos);
  }
  return said;
}

// What of that of one process does not hold of another one, of which nothing else and the first sentence is said;
// nullopt: another thing is.
std::optional<ProcessSection::Difference> difference_of(const Said& whole, const Said& part) {
  if (whole.command != part.command || whole.end_signal != part.end_signal ||
      whole.sentences.front() != part.sentences.front())
    return std::nullopt;
  ProcessSection::Difference missing;
  std::size_t found = 0;
  for (std::size_t i = 0; i < whole.sentences.size(); ++i) {
    const auto same = std::ranges::find(part.sentences, whole.sentences[i]);
    if (same == part.sentences.end()) {
      missing.sentences.push_back(i + 1);
      continue;
    }
    ++found;
    missing.flat |= whole.flat[i] && !part.flat[static_cast<std::size_t>(same - part.sentences.begin())];
  }
  return found == part.sentences.size() ? std::optional(missing) : std::nullopt;
}

std::string ordinal(std::size_t number) {
  return fmt::format("{}{}", number, number == 2 ? "nd" : number == 3 ? "rd" : "th");
}

// ", but for the 2nd and the 3rd sentence and "flat since""
std::string without_text(const ProcessSection::Difference& missing) {
  std::string text;
  for (const std::size_t number : missing.sentences) text += (text.empty() ? "the " : " and the ") + ordinal(number);
  if (!text.empty()) text += " sentence";
  if (missing.flat) text += text.empty() ? "\"flat since\"" : " and \"flat since\"";
  return text.empty() ? "" : ", but for " + text;
}

std::int64_t largest_of(const std::vector<OwnBytes>& all) {
  std::int64_t largest = 0;
  for (const OwnBytes& one : all) largest = std::max(largest, one.bytes);
  return largest;
}

// What has ended had a peak before: both, where they differ.
std::string peak_and_end(const RecordingAccount& recording, const ProcessView& process) {
  if (process.interval.to_s < end_of_work(recording, *process.account)) return "";
  if (!process.account->ended_s || !process.at_last || !process.at_peak) return "";
  if (process.rss.peak - process.rss.last < kNamedGrowthBytes) return "";
  return fmt::format("; {} at its peak at {}, {} at its end at {}", size_text(process.rss.peak),
                     seconds_text(process.at_peak->time_s), size_text(process.rss.last),
                     seconds_text(process.account->teardown_s.value_or(*process.account->ended_s)));
}

// Of files and shared memory, by the last poll up to then.
std::int64_t shared_before(const ProcessAccount& account, double time_s) {
  const auto after = std::ranges::upper_bound(account.polls, time_s, {}, &RssPoint::time_s);
  return after == account.polls.begin() ? 0 : std::prev(after)->shared_bytes;
}

// "; 160 MiB as it ended, at 1.1 s (--from teardown)": exit handlers and the like grew it after the interval, whose end
// is where it began to end. Pages of libraries that their destructors read are none of it.
std::string grown_as_it_ended(const ProcessView& process) {
  const ProcessAccount& account = *process.account;
  if (!process.interval.to_teardown || !account.teardown_s || process.interval.to_s < *account.teardown_s) return "";
  std::int64_t most = 0;
  double most_s = 0;
  const auto compare = [&](double time_s, std::int64_t bytes) {
    if (time_s <= *account.teardown_s || bytes <= most) return;
    most = bytes;
    most_s = time_s;
  };
  for (const Account& walk : account.accounts) compare(walk.time_s, walk.rss_bytes);
  for (const RssPoint& poll : account.polls) compare(poll.time_s, poll.rss_bytes);
  const std::int64_t read = shared_before(account, most_s) - shared_before(account, *account.teardown_s);
  if (most < process.rss.peak || most - process.rss.last - read < kNamedGrowthBytes) return "";
  return fmt::format("; {} as it ended, at {} (--from teardown)", size_text(most), seconds_text(most_s));
}

// "3.1 s", or how much of it was recorded.
std::string lasted_text(const RecordingAccount& recording, const ProcessAccount& process, double from_s, double to_s) {
  const auto broken_s = broken_off_s(recording, process);
  if (!broken_s || *broken_s >= to_s) return seconds_text(to_s - from_s);
  const std::string& why = recording.info.incomplete_why;
  return fmt::format("the {} that were recorded{}", seconds_text(std::max(*broken_s - from_s, 0.0)),
                     why.find("collector") == std::string::npos ? "" : fmt::format(" (then {})", printable(why)));
}

// " from 2.4 s on", by the time of the recording, in which other moments are given.
std::string begun_text(double from_s) {
  constexpr double kLateS = 0.05;
  return from_s < kLateS ? "" : fmt::format(" from {} on", seconds_text(from_s));
}

}  // namespace

std::string name_with_pid(const ProcessAccount& account) {
  return fmt::format("{} (pid {})", command_text(account.command), account.pid);
}

std::string head_line(const RecordingAccount& recording, const ProcessView& process) {
  const ProcessAccount& account = *process.account;
  const Interval& interval = process.interval;
  const double from_s = std::max(interval.from_s, account.born_s);
  const double to_s = std::max(from_s, std::min(interval.to_s, account.ended_s.value_or(interval.to_s)));
  const auto known = [&](const std::string& figure) { return process.walked ? figure : std::string("not known"); };
  const std::string rss =
      is_moment(interval) && process.rss.growth() == 0
          ? fmt::format("{} at {:.3f} s", known(size_text(process.rss.last)), interval.to_s)
          : fmt::format("{} in {}{}{}", known(growth_text(process.rss.growth())),
                        lasted_text(recording, account, from_s, to_s), begun_text(from_s),
                        growth_parts_text(recording.stacks, process) + peak_and_end(recording, process) +
                            grown_as_it_ended(process) + end_signal_text(recording, process));
  return fmt::format("{}   RSS {}", name_with_pid(account), rss);
}

std::string command_text(const std::vector<std::string>& command) {
  if (command.empty()) return "(no command line)";
  std::string text = printable(base_name(command.front()));
  for (std::size_t i = 1; i < command.size(); ++i) {
    std::string word = command[i];
    std::ranges::replace_if(
        word, [](char letter) { return letter == '\n' || letter == '\t'; }, ' ');  // python -c
    text.append(" ").append(printable(word));
  }
  return shortened(text, kCommandColumns);
}

std::vector<ProcessSection> process_sections(const View& view, const std::vector<Verdict>& verdicts) {
  const auto found = by_process(verdicts);
  const auto is_other = [](const Verdict* verdict) { return !is_remark(*verdict); };
  std::vector<Said> all;
  for (const ProcessView& process : view.processes) {
    const auto of_process = found.find(process.account->pid);
    if (of_process == found.end()) continue;
    const bool is_main = &process == &view.processes.front();
    if (!is_main && std::ranges::none_of(of_process->second, is_other)) continue;
    const auto at = std::ranges::find(verdicts, of_process->second.front(), [](const Verdict& one) { return &one; });
    all.push_back(
        said_of(*view.recording, process, of_process->second, static_cast<std::size_t>(at - verdicts.begin())));
  }
  std::vector<ProcessSection> sections;
  std::ranges::stable_sort(all, {}, &Said::first);
  std::vector<const Said*> left;
  for (const Said& one : all) left.push_back(&one);
  while (!left.empty()) {
    // The first of those like it of whom most is to be said.
    const Said* whole = left.front();
    for (const Said* one : left)
      if (one->sentences.size() > whole->sentences.size() && difference_of(*one, *left.front())) whole = one;
    ProcessSection section{.process = whole->process};
    std::erase_if(left, [&](const Said* one) {
      const auto missing = difference_of(*whole, *one);
      if (missing && one != whole) {
        section.alike.push_back(one->process);
        section.without.push_back(*missing);
      }
      return missing.has_value();
    });
    sections.push_back(std::move(section));
  }
  if (sections.empty() && !view.processes.empty()) sections.push_back({&view.processes.front()});
  return sections;
}

// The largest sum of `figure` over a section's processes that lived at one time.
template <typename Figure>
std::int64_t most_at_once(const View& view, const ProcessSection& section, Figure figure) {
  std::vector<OwnBytes> all{own_bytes(view, *section.process, figure(*section.process))};
  for (const ProcessView* process : section.alike) all.push_back(own_bytes(view, *process, figure(*process)));
  return most_at_a_time(all);
}

// "; the 3 together grew by 94 MiB of their own"
std::string together_text(const View& view, const ProcessSection& section) {
  const std::int64_t growth =
      most_at_once(view, section, [](const ProcessView& process) { return process.uss.growth(); });
  if (growth < kNamedGrowthBytes) return "";
  const std::string all = section.alike.size() == 1 ? "both" : fmt::format("the {}", section.alike.size() + 1);
  return fmt::format("; {} together grew by {} of their own", all, size_text(growth));
}

// Whether it was so much larger or smaller than `first` at its peak that its figures are of another size.
bool has_other_figures(const ProcessView& process, const ProcessView& first) {
  constexpr std::int64_t kLeastPart = 4;
  const std::int64_t apart = std::abs(process.rss.peak - first.rss.peak);
  return process.walked && apart >= kNamedGrowthBytes && kLeastPart * apart > first.rss.peak;
}

std::string alike_text(const View& view, const ProcessSection& sections) {
  if (sections.alike.empty()) return "";
  const auto at_once = static_cast<std::size_t>(most_at_once(view, sections, [](const ProcessView&) { return 1; }));
  const std::string together = at_once == 1                       ? ", one at a time"
                               : at_once <= sections.alike.size() ? fmt::format(", at most {} at a time", at_once)
                                                                  : "";
  const auto has_other = [&](const ProcessView* process) { return has_other_figures(*process, *sections.process); };
  std::string list;
  for (std::size_t i = 0; i < std::min(sections.alike.size(), kMostNamed); ++i) {
    const ProcessView& process = *sections.alike[i];
    std::string growth = process.walked ? growth_text(process.rss.growth()) : "not known";
    if (has_other(&process)) growth += fmt::format(", {} at its peak", size_text(process.rss.peak));
    list += fmt::format("{}pid {} ({}{}{}{})", i == 0 ? "" : ", ", process.account->pid,
                        own_words(*process.account, *sections.process->account), i == 0 ? "RSS " : "", growth,
                        without_text(sections.without[i]));
  }
  if (sections.alike.size() > kMostNamed) list += fmt::format(" and {} more", sections.alike.size() - kMostNamed);
  if (together.empty()) list += together_text(view, sections);
  return fmt::format("The same holds{} for {} like it{}: {}",
                     std::ranges::any_of(sections.alike, has_other) ? ", with other figures," : "",
                     counted(sections.alike.size(), "more process"), together, list);
}

std::string left_out_text(const std::vector<ProcessSection>& sections, std::size_t first) {
  constexpr std::size_t kMost = 4;
  std::string list;
  std::size_t count = 0;
  for (std::size_t i = first; i < sections.size(); ++i) {
    count += 1 + sections[i].alike.size();
    if (i >= first + kMost) continue;
    const ProcessView& process = *sections[i].process;
    list += fmt::format("{}{}: RSS {}", list.empty() ? "" : ", ", name_with_pid(*process.account),
                        process.walked ? growth_text(process.rss.growth()) : "not known");
  }
  return fmt::format("{} with verdicts of {} own (whyrss report --top {} shows all): {}{}",
                     counted(count, "more process"), count == 1 ? "its" : "their", sections.size(), list,
                     sections.size() - first > kMost ? " and others" : "");
}

const ProcessSection* section_of(const std::vector<ProcessSection>& sections, std::optional<int> pid) {
  const auto is_it = [&](const ProcessView* process) { return process->account->pid == pid; };
  const auto found = std::ranges::find_if(
      sections, [&](const ProcessSection& one) { return is_it(one.process) || std::ranges::any_of(one.alike, is_it); });
  return found == sections.end() ? nullptr : &*found;
}

bool is_passed_over(const std::vector<ProcessSection>& sections, const Verdict& verdict) {
  if (!verdict.pid) return false;
  const ProcessSection* section = section_of(sections, verdict.pid);
  return section == nullptr ? is_remark(verdict) : section->process->account->pid != verdict.pid;
}

OwnBytes own_bytes(const View& view, const ProcessView& process, std::int64_t bytes) {
  constexpr double kTickS = 0.01;  // the kernel rounds the start down to it
  const ProcessAccount& account = *process.account;
  double from_s = account.born_s + kTickS;
  if (!account.accounts.empty()) from_s = std::min(from_s, account.accounts.front().time_s);
  if (!account.polls.empty()) from_s = std::min(from_s, account.polls.front().time_s);
  // It is seen to have ended later than it left.
  const std::optional<double> to_s = account.has_left && account.left_s ? account.left_s : account.ended_s;
  return {from_s, to_s.value_or(view.interval.to_s), bytes};
}

std::int64_t most_at_a_time(const std::vector<OwnBytes>& all) {
  std::vector<std::pair<double, std::int64_t>> changes;
  for (const OwnBytes& one : all) {
    changes.emplace_back(one.from_s, one.bytes);
    changes.emplace_back(std::max(one.from_s, one.to_s), -one.bytes);
  }
  // One that begins when another one ends was there beside it: times are rounded.
  std::ranges::sort(changes, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  std::int64_t now = 0, most = 0;
  for (const auto& [time_s, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

std::int64_t sum_of(const std::vector<OwnBytes>& all) {
  std::int64_t sum = 0;
  for (const OwnBytes& one : all) sum += one.bytes;
  return sum;
}

std::string rest_text(const View& view, const std::vector<ProcessSection>& sections,
                      const std::vector<Verdict>& verdicts) {
  std::set<int> covered;
  for (const ProcessSection& one : sections) {
    covered.insert(one.process->account->pid);
    for (const ProcessView* process : one.alike) covered.insert(process->account->pid);
  }
  for (const Verdict& verdict : verdicts) covered.insert(verdict.covered_pids.begin(), verdict.covered_pids.end());
  std::size_t count = 0, walked = 0, ended = 0;
  std::vector<OwnBytes> growths;
  std::set<std::string> names;
  for (const ProcessView& process : view.processes) {
    if (covered.contains(process.account->pid) || !was_there(view, process)) continue;
    ++count;
    walked += process.walked ? 1 : 0;
    ended += process.account->ended_s ? 1 : 0;
    growths.push_back(own_bytes(view, process, process.uss.growth()));
    if (!process.account->command.empty()) names.insert(printable(base_name(process.account->command.front())));
  }
  if (count == 0) return "";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  const std::int64_t growth = sum_of(growths), at_a_time = most_at_a_time(growths);
  std::string figures = growth_text(growth) + (walked == 1 && count == 1 ? " of its own" : " of their own together");
  if (at_a_time < growth)
    figures = fmt::format("each up to {} of its own, at most {} at once", size_text(largest_of(growths)),
                          at_a_time > largest_of(growths) ? size_text(at_a_time) : "that");
  const std::string whose = count == 1 ? "its" : "their";
  if (walked == 0 && view.recording->info.complete && ended == count)
    figures = "ended before " + whose + " memory could be read";
  else if (walked == 0)
    figures = whose + " memory is not known";
  return fmt::format("{} more process{} ({}): {}", count, count == 1 ? "" : "es",
                     shortened(list.empty() ? "no command line" : list, kCommandColumns), figures);
}

}  // namespace whyrss
