// The whyrss command: parse, dispatch, print errors.
#include <cstdio>
#include <exception>

#include "cli/command_line.h"
#include "report/format.h"
#include "support/file_size_signal.h"
#include "support/process_title.h"

namespace whyrss {
namespace {

int run(const UsageError& error) {
  std::fprintf(stderr, "whyrss: %s\n", printable(error.message).c_str());
  return error.exit_status;
}

int run(const ShowText& show) {
  std::fputs(show.text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int run(RecordOptions options) {
  options.short_verdict = short_verdict;
  options.store_names = store_names;
  return run_record(options);
}

int run(const ReportOptions& options) { return run_report(options); }
int run(const CompareOptions& options) { return run_compare(options); }
int run(const ProveOptions& options) { return run_prove(options); }
int run(const DoctorOptions& options) { return run_doctor(options); }
int run(CollectOptions options) {
  options.store_names = store_names;
  return run_collect(options);
}
int run(const EnvOptions& options) { return run_env(options); }

}  // namespace
}  // namespace whyrss

int main(int argc, char** argv) {
  whyrss::catch_file_size_signal();
  try {
    whyrss::remember_arguments(argc, argv);
    const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    return std::visit([](const auto& command) { return whyrss::run(command); }, whyrss::parse_command_line(arguments));
  } catch (const std::exception& error) {  // out of memory and the like
    std::fprintf(stderr, "whyrss: %s\n", whyrss::printable(error.what()).c_str());
    return 1;
  }
}
