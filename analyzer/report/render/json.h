// The report for programs: schema whyrss.report/1, described in report.schema.json, and /2 in report.2.schema.json.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "report/render/site_json.h"
#include "report/render/stack_json.h"
#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

struct JsonStyle {
  SiteStyle sites{};
  JsonSchema schema = JsonSchema::v2;
  bool pages = false;  // schema 2: with the pictures of address spaces that the accounts have
};

// One object with a final newline, indented, but each process and stack on a line of its own. Bytes that are no
// UTF-8 are replaced, never an error. In pieces of a process at most: those of a job of hundreds would not fit into
// memory together.
void write_json(const View& view, const std::vector<Verdict>& verdicts, const JsonStyle& style,
                const std::function<void(std::string_view)>& write);
// The whole of it.
std::string render_json(const View& view, const std::vector<Verdict>& verdicts, const JsonStyle& style);

}  // namespace whyrss
