// The report for programs: schema whyrss.report/1, described in report.schema.json.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "report/verdict.h"
#include "report/view.h"

namespace whyrss {

// One object with a final newline, indented, but each process on a line of its own. Bytes that are no UTF-8 are
// replaced, never an error. `top`: sites kept per cause, the others summed in one with an empty stack; 0 keeps all.
// In pieces of a process at most: those of a job of hundreds would not fit into memory together.
void write_json(const View& view, const std::vector<Verdict>& verdicts, std::size_t top,
                const std::function<void(std::string_view)>& write);
// The whole of it.
std::string render_json(const View& view, const std::vector<Verdict>& verdicts, std::size_t top = 0);

}  // namespace whyrss
