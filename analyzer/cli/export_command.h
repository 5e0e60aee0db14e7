// `whyrss export REC --format NAME`: the recording in a format of other tools.
#pragma once

#include <string>

#include "cli/report_command.h"
#include "export/export_format.h"

namespace whyrss {

struct ExportOptions {
  std::string recording;
  std::string format;
  std::string output;  // -o; empty or "-": stdout
  ReportPart part;
  ExportValue value = ExportValue::resident;
};

// 0, 1 unreadable recording or output, 2 an option that does not fit the recording or the terminal.
int run_export(const ExportOptions& options);

}  // namespace whyrss
