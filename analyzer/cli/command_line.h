// What was typed, as typed values. No I/O.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/collect_command.h"
#include "cli/compare_command.h"
#include "cli/diff_command.h"
#include "cli/doctor_command.h"
#include "cli/env_command.h"
#include "cli/export_command.h"
#include "cli/html_command.h"
#include "cli/prove_command.h"
#include "cli/record_command.h"
#include "cli/reduce_command.h"
#include "cli/report_command.h"
#include "cli/top_command.h"

namespace whyrss {

struct ShowText {  // --help, --version
  std::string text;
};

struct UsageError {
  std::string message;  // one line
  int exit_status = 2;  // 125 for record, whose other statuses belong to the command
};

using CommandLine = std::variant<UsageError, ShowText, RecordOptions, ReportOptions, HtmlOptions, CompareOptions,
                                 ProveOptions, DoctorOptions, CollectOptions, EnvOptions, ExportOptions, DiffOptions,
                                 ReduceOptions, MergeOptions, TopOptions>;

// `arguments` without the program's name. `whyrss CMD` means `whyrss record CMD`; verbs win over programs
// of the same name. Options of record, compare-allocators and doctor end at the first word that is none; `--`
// settles doubts.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace whyrss
