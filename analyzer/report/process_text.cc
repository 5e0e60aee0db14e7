#include "report/process_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "report/blame.h"
#include "report/format.h"

namespace whyrss {
namespace {

constexpr std::size_t kCommandColumns = 60;
}  // namespace

std::string command_text(const std::vector<std::string>& command) {
  if (command.empty()) return "(no command line)";
  std::string text = printable(base_name(command.front()));
  for (std::size_t i = 1; i < command.size(); ++i) text += " " + printable(command[i]);
  return shortened(text, kCommandColumns);
}

std::vector<const ProcessView*> told_processes(const View& view, const std::vector<Verdict>& verdicts) {
  std::set<int> named;
  for (const Verdict& verdict : verdicts)
    if (verdict.pid) named.insert(*verdict.pid);
  std::vector<const ProcessView*> told;
  for (const ProcessView& process : view.processes)
    if (named.contains(process.account->pid)) told.push_back(&process);
  // Not of std::ranges: clang 14 cannot read what that one returns.
  std::stable_partition(told.begin(), told.end(), [&](const ProcessView* process) {
    return std::ranges::any_of(verdicts, [&](const Verdict& verdict) {
      return verdict.severity == Severity::problem && verdict.pid == process->account->pid;
    });
  });
  if (told.empty() && !view.processes.empty()) told.push_back(&view.processes.front());
  return told;
}

std::string rest_text(const View& view, const std::vector<const ProcessView*>& told,
                      const std::vector<Verdict>& verdicts) {
  std::set<int> covered;
  for (const Verdict& verdict : verdicts) covered.insert(verdict.covered_pids.begin(), verdict.covered_pids.end());
  std::size_t count = 0, walked = 0;
  std::int64_t growth = 0;
  std::set<std::string> names;
  for (const ProcessView& process : view.processes) {
    if (std::find(told.begin(), told.end(), &process) != told.end() || covered.contains(process.account->pid)) continue;
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
