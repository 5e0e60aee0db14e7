// Comma-separated values (RFC 4180): one site a row, safe to open in a spreadsheet.
#include <fmt/format.h>

#include <cmath>

#include "export/export_format.h"
#include "report/view/blame.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Quoted always. What a spreadsheet would take for a formula gets an apostrophe, which it takes for "text follows".
std::string csv_text(const std::string& text) {
  constexpr std::string_view kFormula = "=+-@\t\r";
  std::string quoted = "\"";
  if (!text.empty() && kFormula.find(text.front()) != std::string_view::npos) quoted += '\'';
  for (const char byte : text) {
    if (byte == '"') quoted += '"';
    quoted += byte;
  }
  return quoted + '"';
}

std::string stack_text(const StackTable& stacks, const ExportRow& row) {
  std::string text;
  for (const ExportFrame& frame : plain_stack(stacks, row)) {
    if (!text.empty()) text += " > ";
    text += frame.function;
    if (frame.line > 0) text += fmt::format(" ({}:{})", frame.file, frame.line);
  }
  return text;
}

std::string csv_row(const StackTable& stacks, const ExportRow& row) {
  const ProcessAccount& process = *row.process->account;
  return fmt::format("{},{},{:.6f},{},{},{},{},{},{},{},{}\n", process.pid, csv_text(command_text(process)),
                     process.born_s, info(row.cause->cause).slug, csv_text(printable(row.site->mapping())),
                     csv_text(printable(blamed_line(stacks, row.site->stack))), csv_text(stack_text(stacks, row)),
                     row.site->resident, row.site->growth, row.site->at_peak,
                     std::llround(std::sqrt(row.site->variance)));
}

}  // namespace

std::vector<std::string> write_csv(const ExportRequest& request, const ByteSink& write) {
  write("pid,process,born_s,cause,mapping,line,stack,resident,growth,at_peak,standard_error\n");
  for (const ExportRow& row : export_rows(*request.view)) write(csv_row(request.view->recording->stacks, row));
  return {};
}

}  // namespace whyrss
