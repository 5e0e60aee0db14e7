// A comparison of allocators as text, Markdown and JSON (schema whyrss.compare/1, compare.schema.json).
#pragma once

#include <cstddef>
#include <string>

#include "report/compare/compare.h"
#include "report/wording/wrap.h"

namespace whyrss {

// In lines of at most `columns`.
std::string render_compare_text(const Comparison& comparison, std::size_t columns = kTextColumns);
std::string render_compare_markdown(const Comparison& comparison);
// One object, indented, with a final newline.
std::string render_compare_json(const Comparison& comparison);

}  // namespace whyrss
