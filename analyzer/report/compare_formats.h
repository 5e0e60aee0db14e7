// A comparison of allocators as text, Markdown and JSON (schema whyrss.compare/1, compare.schema.json).
#pragma once

#include <string>

#include "report/compare.h"

namespace whyrss {

std::string render_compare_text(const Comparison& comparison);
std::string render_compare_markdown(const Comparison& comparison);
// One object, indented, with a final newline.
std::string render_compare_json(const Comparison& comparison);

}  // namespace whyrss
