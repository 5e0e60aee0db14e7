// The report for programs: schema whyrss.report/1, described in report.schema.json.
#pragma once

#include <string>
#include <vector>

#include "report/verdict.h"
#include "report/view.h"

namespace whyrss {

// One object, indented, with a final newline. Bytes that are no UTF-8 are replaced, never an error.
// `top`: sites kept per cause, the others summed in one with an empty stack; 0 keeps all.
std::string render_json(const View& view, const std::vector<Verdict>& verdicts, std::size_t top = 0);

}  // namespace whyrss
