#include "cli/html_command.h"

#include <filesystem>

#include "cli/complain.h"
#include "cli/load_job.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/report_command.h"
#include "job/job_html.h"
#include "job/part_file.h"
#include "report/html/html.h"
#include "report/view/build_view.h"

namespace whyrss {
namespace {

constexpr PictureBudget kPictures{.of_each = 24, .pictures = 1000, .entries = 400'000};

std::string default_output(const std::string& recording) {
  std::filesystem::path path = std::filesystem::absolute(recording).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // of "DIR/"
  path = path.filename();
  if (path.extension() == ".whyrss" || path.extension() == ".whyrss-job") path.replace_extension();
  return path.string() + ".html";
}

int write_page_file(const HtmlOptions& options, Progress& progress,
                    const std::function<void(const TextSink&)>& write_page) {
  const std::string output = options.output.empty() ? default_output(options.recording) : options.output;
  const int written = write_output(write_page, output, "the page");
  progress.clear();
  if (written != 0 || !options.output.empty()) return written;
  return write_output(output + "\n", "", "the name of the page");
}

int run_job_html(const HtmlOptions& options) {
  Progress progress;
  const Result<TimedJob> timed = load_timed_job(options.recording, progress);
  if (!timed) return complain(timed.error());
  progress.at("writing the page");
  return write_page_file(options, progress,
                         [&](const TextSink& write) { write_job_html(timed->job, timed->timeline, write); });
}

}  // namespace

int run_html(const HtmlOptions& options) {
  if (may_be_part(options.recording)) return run_job_html(options);
  Progress progress;
  const Result<RecordingAccount> recording = load_with_names(options.recording, progress, kPictures);
  if (!recording) return complain(recording.error());
  progress.at("writing the page");
  const View view = build_view(*recording, whole_life(*recording));
  const std::vector<Verdict> verdicts = find_verdicts(view);
  return write_page_file(options, progress, [&](const TextSink& write) { write_html(view, verdicts, write); });
}

}  // namespace whyrss
