#include "cli/job_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/load_job.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "job/job_json.h"
#include "job/job_text.h"

namespace whyrss {
namespace {

constexpr std::size_t kJsonProcesses = 100;

// The option that only recordings have, "" for none.
std::string option_of_recordings(const ReportOptions& options) {
  if (!options.from.empty()) return "--from";
  if (!options.to.empty()) return "--to";
  if (options.pid) return "--pid";
  if (options.by != "alloc") return "--by";
  if (options.pages) return "--pages";
  if (options.schema) return "--schema";
  if (options.keeps_small_sites) return "--small-sites";
  if (options.stacks) return "--stacks";
  if (options.in_notebook) return "--in-notebook";
  if (!options.fail_if.empty()) return "--fail-if";
  return options.format == "github" ? "--format github" : "";
}

std::string rendered(const ReportOptions& options, const JobView& job) {
  if (options.format == "json") return render_job_json(job, options.top.value_or(kJobJsonEntries));
  return render_job_text(job, job_text_style(options.format, options.top, output_columns(options.output)));
}

}  // namespace

int run_job_report(const ReportOptions& options) {
  if (const std::string option = option_of_recordings(options); !option.empty())
    return complain(fmt::format("report: {} is for recordings; {} is a part of a job", option, options.recording),
                    kUsage);
  Progress progress;
  const std::size_t details = options.format == "json" ? options.top.value_or(kJsonProcesses) : 0;
  const Result<JobView> job = load_job(options.recording, details, progress);
  progress.clear();
  if (!job) return complain(job.error(), kFailed);
  return write_output(rendered(options, *job), options.output, "the report");
}

}  // namespace whyrss
