// The whyrss command: parse, dispatch, print errors.
#include <exception>
#include <new>

#include "cli/command_line.h"
#include "cli/complain.h"
#include "cli/help_text.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "support/last_words.h"
#include "support/process_title.h"

namespace whyrss {
namespace {

constexpr int kFailed = 1, kCannotRecord = 125;

int run(const UsageError& error) { return complain(error.message, error.exit_status); }
int run(const ShowText& show) { return write_output(wrapped_help(show.text, output_columns("")), "", "the help"); }

int run(RecordOptions options) {
  options.short_verdict = short_verdict;
  options.store_names = store_names;
  return run_record(options);
}

int run(const ReportOptions& options) { return run_report(options); }
int run(const HtmlOptions& options) { return run_html(options); }
int run(const CompareOptions& options) { return run_compare(options); }
int run(const ProveOptions& options) { return run_prove(options); }
int run(const DoctorOptions& options) { return run_doctor(options); }
int run(CollectOptions options) {
  options.store_names = store_names;
  return run_collect(options);
}
int run(const EnvOptions& options) { return run_env(options); }
int run(const ExportOptions& options) { return run_export(options); }
int run(const DiffOptions& options) { return run_diff(options); }
int run(const ReduceOptions& options) { return run_reduce(options); }
int run(const MergeOptions& options) { return run_merge(options); }
int run(const TopOptions& options) { return run_top(options); }

int run_all(const std::vector<std::string>& arguments) {
  const CommandLine command = parse_command_line(arguments);
  const auto* top = std::get_if<TopOptions>(&command);
  const bool watches = top != nullptr && top->record;
  const bool records = watches || std::holds_alternative<RecordOptions>(command);  // ends as its command did
  const int failed = records ? kCannotRecord : kFailed;
  install_last_words(failed);
  try {
    const int status = std::visit([](const auto& known) { return run(known); }, command);
    if (status != 0 && !records && !has_said()) say("it failed without a reason (please report it)");
    return status;
  } catch (const std::bad_alloc&) {
    say(kOutOfMemory);
    return failed;
  } catch (const std::exception& error) {
    return complain(error.what(), failed);
  }
}

}  // namespace
}  // namespace whyrss

int main(int argc, char** argv) {
  whyrss::install_last_words(whyrss::kFailed);
  whyrss::remember_arguments(argc, argv);
  return whyrss::run_all(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
