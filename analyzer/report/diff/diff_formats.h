// A difference as text, Markdown, JSON (schema whyrss.diff/1, diff.schema.json) and a page.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/diff/diff.h"
#include "report/wording/wrap.h"

namespace whyrss {

struct DiffStyle {
  std::size_t top = 10;                // lines shown
  std::string name_a{}, name_b{};      // of what is compared: "a.whyrss, phase load"
  std::string part_a{}, part_b{};      // of a recording, "phase load, pid 41"; empty: all of it
  std::size_t columns = kTextColumns;  // of a line of text, at most
};

std::string render_diff_text(const Diff& diff, const DiffStyle& style);
std::string render_diff_markdown(const Diff& diff, const DiffStyle& style);
// One object, indented, with a final newline. Of the lines of a cause beyond the `top` one more sums up the rest.
std::string render_diff_json(const Diff& diff, const DiffStyle& style);

// One file, below 10 MB: the same lines as the JSON, and the stacks, of which the smallest may be summed per cause.
std::string render_diff_html(const Diff& diff, const DiffStyle& style);

// What one of them may lack, as a figure of 0 could be taken for a fact.
std::vector<std::string> diff_doubts(const Diff& diff);

}  // namespace whyrss
