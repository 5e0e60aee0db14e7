// How a report speaks about a process, and which processes it passes over.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/verdict.h"
#include "report/view.h"

namespace whyrss {

// "python quickstart.py": the program by its base name, then its arguments, printable.
std::string command_text(const std::vector<std::string>& command);

// A process that gets a block of its own in the answer, and those whose command line and verdicts are the same but
// for their figures: they are named below it.
struct ToldProcess {
  const ProcessView* process = nullptr;
  std::vector<const ProcessView*> alike{};
};

// Those with a verdict, in the view's order, problems first. Never empty unless the view is.
std::vector<ToldProcess> told_processes(const View& view, const std::vector<Verdict>& verdicts);

// "The same holds for 2 more processes like it: pid 12 (RSS +65 MiB), pid 13 (+64 MiB)", "" for none.
std::string alike_text(const ToldProcess& told);

// Whether a verdict on this process is told of another one.
bool is_alike(const std::vector<ToldProcess>& told, std::optional<int> pid);

// "2 more processes (sh, python): +18 MiB of their own together", "" for none. Leaves out those that a
// verdict covers.
std::string rest_text(const View& view, const std::vector<ToldProcess>& told, const std::vector<Verdict>& verdicts);

}  // namespace whyrss
