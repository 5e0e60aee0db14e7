// Collapsed stacks: "process;cause;outermost;...;innermost;mapping BYTES" a line, as flamegraph.pl reads them.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "export/export_format.h"

namespace whyrss {
namespace {

// Readers split lines at ';', and take what is behind the last space for the figure.
std::string collapsed_name(std::string name) {
  std::ranges::replace(name, ';', ':');
  return name;
}

std::string collapsed_stack(const StackTable& stacks, const ExportRow& row) {
  std::string line;
  for (const ExportFrame& frame : labelled_stack(stacks, row)) {
    if (!line.empty()) line += ';';
    line += collapsed_name(frame.function);
    if (frame.line > 0) line += fmt::format(" ({}:{})", collapsed_name(frame.file), frame.line);
  }
  return line;
}

}  // namespace

std::vector<std::string> write_collapsed(const ExportRequest& request, const ByteSink& write) {
  const View& view = *request.view;
  std::map<std::string, std::int64_t> stacks;  // sites of one stack may differ in what the line does not show
  for (const ExportRow& row : export_rows(view))
    if (const std::int64_t bytes = row.value(request.value); bytes != 0)
      stacks[collapsed_stack(view.recording->stacks, row)] += bytes;
  Shrunk shrunk;
  for (const auto& [stack, bytes] : stacks) {
    if (bytes > 0) write(fmt::format("{} {}\n", stack, bytes));
    if (bytes < 0) shrunk.add(bytes);
  }
  return shrunk.remarks();
}

}  // namespace whyrss
