// The verdicts as annotations of a GitHub Actions job: workflow commands, which the runner finds in a step's output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// GitHub shows no more of each level for one step, and drops the others without a word.
inline constexpr std::size_t kMostAnnotations = 10;

// ::warning for problems and warnings, ::notice for those of `info` that name a line; the most severe first. Processes
// alike are named in the annotations of one of them. Files below `root` (the checkout; "" for none) are given relative
// to it. How many were left out stands in a line of plain text.
std::string render_github(const View& view, const std::vector<Verdict>& verdicts, const std::string& root);

// Of a message, and of a property (file, title): the runner decodes these and no others.
std::string github_escaped(std::string_view text);
std::string github_property(std::string_view text);

}  // namespace whyrss
