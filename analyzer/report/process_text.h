// How a report speaks about a process, and which processes it passes over.
#pragma once

#include <string>
#include <vector>

#include "report/verdict.h"
#include "report/view.h"

namespace whyrss {

// "python quickstart.py": the program by its base name, then its arguments, printable.
std::string command_text(const std::vector<std::string>& command);

// The processes that get a block of their own in the answer, in the view's order: those with a verdict.
// Never empty unless the view is.
std::vector<const ProcessView*> told_processes(const View& view, const std::vector<Verdict>& verdicts);

// "2 more processes (sh, python): +18 MiB of their own together", "" for none. Leaves out those that a
// verdict covers.
std::string rest_text(const View& view, const std::vector<const ProcessView*>& told,
                      const std::vector<Verdict>& verdicts);

}  // namespace whyrss
