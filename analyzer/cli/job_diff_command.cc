#include "cli/job_diff_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/fail_if.h"
#include "cli/load_job.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "job/job_diff_formats.h"

namespace whyrss {
namespace {

// The option that only recordings have, "" for none.
std::string option_of_recordings(const DiffOptions& options) {
  for (const DiffSide& side : {options.a, options.b}) {
    if (!side.phase.empty()) return std::string("--phase") + side.suffix;
    if (side.pid) return std::string("--pid") + side.suffix;
  }
  if (options.value.value_or(SiteFigure::at_peak) != SiteFigure::at_peak) return "--value other than at_peak";
  return options.format == "html" ? "--format html" : "";
}

std::string rendered(const DiffOptions& options, const JobDiff& diff) {
  if (options.format == "json") return render_job_diff_json(diff, options.top.value_or(kJobJsonEntries));
  return render_job_diff_text(diff, job_text_style(options.format, options.top, output_columns(options.output)));
}

Result<DiffFigure> figure_of(const DiffFailIf& condition, const JobDiff& diff) {
  const std::string& name = condition.base.name;
  if (name == "rss") return diff.rss;
  if (name == "uss") return Error{"--fail-if uss: a part of a job does not hold USS"};
  if (name == "pss" && !diff.pss) return Error{"--fail-if pss: PSS of no process of a job was read"};
  if (name == "pss") return *diff.pss;
  for (const DiffCause& cause : diff.causes)
    if (info(cause.cause).slug == name) return cause.figure;
  return DiffFigure{};
}

}  // namespace

int run_job_diff(const DiffOptions& options) {
  std::error_code ignored;
  for (const auto& [part, other] : {std::pair(&options.a, &options.b), std::pair(&options.b, &options.a)})
    if (std::filesystem::is_directory(other->recording, ignored))
      return complain(fmt::format("diff: {} is a part of a job, and {} a recording: a job is compared with a job",
                                  part->recording, other->recording),
                      kUsage);
  if (const std::string option = option_of_recordings(options); !option.empty())
    return complain(fmt::format("diff: {} is for recordings; {} is a part of a job", option, options.a.recording),
                    kUsage);
  const Result<std::optional<DiffFailIf>> condition = optional_diff_fail_if(options.fail_if);
  if (!condition) return complain(condition.error(), kUsage);
  Progress progress;
  const Result<JobView> a = load_job(options.a.recording, 0, progress);
  const Result<JobView> b = a ? load_job(options.b.recording, 0, progress) : Result<JobView>(Error{a.error()});
  progress.clear();
  if (!b) return complain(b.error(), kFailed);
  const JobDiff diff = diff_jobs(*a, *b);
  const int written = write_output(rendered(options, diff), options.output, "the difference");
  if (written != kDone || !*condition) return written;
  return end_by(**condition, options.fail_if, figure_of(**condition, diff));
}

}  // namespace whyrss
