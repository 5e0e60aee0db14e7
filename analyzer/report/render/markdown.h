// The same report for a pull request or an issue.
#pragma once

#include <string>
#include <vector>

#include "report/render/text.h"

namespace whyrss {

std::string render_markdown(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style);

}  // namespace whyrss
