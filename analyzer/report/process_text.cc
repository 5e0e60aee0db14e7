#include "report/process_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <utility>

#include "report/blame.h"
#include "report/format.h"

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

// What is said of a process, without sizes, shares and times; workers' command lines differ in numbers only.
std::string kind_of(const ProcessView& process, const std::vector<const Verdict*>& verdicts) {
  static const std::regex kFigure("[0-9][0-9.,]* (B|[KMGT]iB|%|m?s)");
  std::string kind;
  for (const std::string& word : process.account->command)
    std::ranges::copy_if(word + '\0', std::back_inserter(kind),
                         [](char letter) { return letter < '0' || letter > '9'; });
  for (const Verdict* verdict : verdicts)
    kind += fmt::format("\n{} {} {}", slug(verdict->severity), verdict->id,
                        std::regex_replace(verdict->headline, kFigure, "#"));
  return kind;
}

}  // namespace

std::string command_text(const std::vector<std::string>& command) {
  if (command.empty()) return "(no command line)";
  std::string text = printable(base_name(command.front()));
  for (std::size_t i = 1; i < command.size(); ++i) text.append(" ").append(printable(command[i]));
  return shortened(text, kCommandColumns);
}

std::vector<ToldProcess> told_processes(const View& view, const std::vector<Verdict>& verdicts) {
  const auto found = by_process(verdicts);
  std::vector<ToldProcess> told;
  std::map<std::string, std::size_t> kinds;
  for (const ProcessView& process : view.processes) {
    const auto of_process = found.find(process.account->pid);
    if (of_process == found.end()) continue;
    const auto [kind, is_new] = kinds.try_emplace(kind_of(process, of_process->second), told.size());
    if (is_new)
      told.push_back({&process});
    else
      told[kind->second].alike.push_back(&process);
  }
  // Not of std::ranges: clang 14 cannot read what that one returns.
  std::stable_partition(told.begin(), told.end(), [&](const ToldProcess& one) {
    return std::ranges::any_of(found.at(one.process->account->pid),
                               [](const Verdict* verdict) { return verdict->severity == Severity::problem; });
  });
  if (told.empty() && !view.processes.empty()) told.push_back({&view.processes.front()});
  return told;
}

std::string alike_text(const ToldProcess& told) {
  if (told.alike.empty()) return "";
  std::string list;
  for (std::size_t i = 0; i < std::min(told.alike.size(), kMostNamed); ++i) {
    const ProcessView& process = *told.alike[i];
    const std::string growth = process.walked ? growth_text(process.rss.growth()) : "not known";
    list += fmt::format("{}pid {} ({}{})", i == 0 ? "" : ", ", process.account->pid, i == 0 ? "RSS " : "", growth);
  }
  if (told.alike.size() > kMostNamed) list += fmt::format(" and {} more", told.alike.size() - kMostNamed);
  return fmt::format("The same holds for {} more process{} like it: {}", told.alike.size(),
                     told.alike.size() == 1 ? "" : "es", list);
}

bool is_alike(const std::vector<ToldProcess>& told, std::optional<int> pid) {
  const auto is_it = [&](const ProcessView* process) { return process->account->pid == pid; };
  return std::ranges::any_of(told, [&](const ToldProcess& one) { return std::ranges::any_of(one.alike, is_it); });
}

std::string rest_text(const View& view, const std::vector<ToldProcess>& told, const std::vector<Verdict>& verdicts) {
  std::set<int> covered;
  for (const ToldProcess& one : told) {
    covered.insert(one.process->account->pid);
    for (const ProcessView* process : one.alike) covered.insert(process->account->pid);
  }
  for (const Verdict& verdict : verdicts) covered.insert(verdict.covered_pids.begin(), verdict.covered_pids.end());
  std::size_t count = 0, walked = 0;
  std::int64_t growth = 0;
  std::set<std::string> names;
  for (const ProcessView& process : view.processes) {
    if (covered.contains(process.account->pid)) continue;
    ++count;
    walked += process.walked ? 1 : 0;
    growth += process.uss.growth();
    if (!process.account->command.empty()) names.insert(printable(base_name(process.account->command.front())));
  }
  if (count == 0) return "";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  const std::string figures =
      walked == 0 ? "ended before their memory could be read" : growth_text(growth) + " of their own together";
  return fmt::format("{} more process{} ({}): {}", count, count == 1 ? "" : "es",
                     shortened(list.empty() ? "no command line" : list, kCommandColumns), figures);
}

}  // namespace whyrss
